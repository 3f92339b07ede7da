#include "tokenizer/byte_bpe.h"

#include <xxhash.h>

#include <array>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "tokenizer/char_classes.h"
#include "tokenizer/joints.h"
#include "tokenizer/word_cache.h"

namespace megatron::tokenizer {
namespace {

constexpr std::size_t kOnStack = 256;  // bytes of a part that need no memory of their own

// Kinds of words in the cache: a part is merged even where it is a piece of the vocabulary.
constexpr std::uint32_t kPiece = 0, kPart = 1;

/// Tries to make each piece of two parts by the merges of lower rank. False if one is left in more.
bool single_merges(const std::vector<std::string>& pieces, const std::array<std::uint32_t, 256>& byte_ids,
                   std::vector<BpeMerge>& merges) {
  std::unordered_map<std::uint64_t, std::uint32_t> made;
  made.reserve(pieces.size());
  std::vector<std::uint32_t> ids;
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    const std::string& piece = pieces[rank];
    if (piece.size() < 2) continue;
    ids.clear();
    for (const char c : piece) {
      ids.push_back(byte_ids[static_cast<unsigned char>(c)]);
      if (ids.back() == BpeMerges::kNone) return false;
    }
    const auto key = [&](std::size_t i) { return std::uint64_t{ids[i]} << 32 | ids[i + 1]; };
    for (;;) {
      std::size_t best = ids.size();
      std::uint32_t lowest = BpeMerges::kNone;
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = made.find(key(i));
        if (found != made.end() && found->second < lowest) {
          lowest = found->second;
          best = i;
        }
      }
      if (best == ids.size()) break;
      ids[best] = lowest;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    if (ids.size() != 2) return false;
    made.emplace(key(0), static_cast<std::uint32_t>(rank));
    merges.push_back({ids[0], ids[1], static_cast<std::uint32_t>(rank)});
  }
  return true;
}

/// Bytes that GPT-2's alphabet spells as themselves; the 68 others are U+0100 and up, in the order of their values.
constexpr bool spelled_as_itself(std::uint32_t b) { return (b >= 33 && b <= 126) || (b >= 161 && b != 173); }

struct Alphabet {
  std::array<std::uint32_t, 256> code_points{};
  std::array<int, 0x144> bytes{};
};

constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (int& byte : a.bytes) byte = -1;
  std::uint32_t next = 0x100;
  for (std::uint32_t b = 0; b < 256; ++b) {
    a.code_points[b] = spelled_as_itself(b) ? b : next++;
    a.bytes[a.code_points[b]] = static_cast<int>(b);
  }
  return a;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

BytesIndex::BytesIndex(const std::vector<std::string>& strings) {
  std::size_t total = 0;
  for (const std::string& s : strings) total += s.size();
  text_.reserve(total);
  offsets_.reserve(strings.size() + 1);
  offsets_.push_back(0);
  for (const std::string& s : strings) {
    text_ += s;
    offsets_.push_back(text_.size());
  }
  std::size_t places = 16;
  while (places < 2 * strings.size()) places *= 2;
  slots_.resize(places);
  for (std::size_t id = 0; id < size(); ++id) {
    if (bytes(id).empty()) continue;
    std::size_t slot = XXH3_64bits(bytes(id).data(), bytes(id).size()) & (places - 1);
    for (; slots_[slot] != 0; slot = (slot + 1) & (places - 1))
      if (bytes(slots_[slot] - 1) == bytes(id))
        throw ConfigError(str_cat("the ids ", slots_[slot] - 1, " and ", id,
                                  " of the vocabulary stand for the same bytes, ", bytes_to_visible(bytes(id))));
    slots_[slot] = static_cast<std::uint32_t>(id + 1);
  }
}

std::optional<std::uint32_t> BytesIndex::find(std::string_view wanted) const {
  if (wanted.empty()) return std::nullopt;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = XXH3_64bits(wanted.data(), wanted.size()) & mask; slots_[slot] != 0; slot = (slot + 1) & mask)
    if (bytes(slots_[slot] - 1) == wanted) return slots_[slot] - 1;
  return std::nullopt;
}

ByteBpe::ByteBpe(ByteBpeConfig config)
    : merges_(config.merges, config.rank),
      whole_pieces_first_(config.whole_pieces_first),
      unknown_(config.unknown),
      vocabulary_(config.vocabulary),
      cache_(std::make_unique<WordCache>()) {
  for (std::size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_ids_[b] = vocabulary_.find({&byte, 1}).value_or(unknown_.value_or(kNoId));
  }
  joints_ = find_joints(config.merges);
}

ByteBpe::~ByteBpe() = default;
ByteBpe::ByteBpe(ByteBpe&&) noexcept = default;

void ByteBpe::encode(std::string_view text, const Splitter& splitter, std::vector<std::int64_t>& ids) const {
  std::array<Piece, 64> pieces;
  std::size_t at = 0;
  while (const std::size_t count = splitter.next(text, at, pieces))
    for (std::size_t i = 0; i < count; ++i)
      encode_piece(text.substr(pieces[i].begin, pieces[i].end - pieces[i].begin), ids);
}

void ByteBpe::encode_piece(std::string_view piece, std::vector<std::int64_t>& ids) const {
  cache_->append(piece, kPiece, ids, [this](std::string_view word, auto& to) { encode_new(word, to); });
}

void ByteBpe::encode_new(std::string_view piece, std::vector<std::int64_t>& ids) const {
  if (whole_pieces_first_)
    if (const auto whole = vocabulary_.find(piece)) return ids.push_back(*whole);
  if (joints_ == nullptr || piece.empty()) return merge(piece, ids);
  std::size_t end = joints_->part_end(piece, 0);
  if (end == piece.size()) return merge(piece, ids);
  for (std::size_t begin = 0; begin < piece.size(); begin = end) {
    if (begin > 0) end = joints_->part_end(piece, begin);
    cache_->append(piece.substr(begin, end - begin), kPart, ids,
                   [this](std::string_view part, auto& to) { merge(part, to); });
  }
}

void ByteBpe::merge(std::string_view part, std::vector<std::int64_t>& ids) const {
  if (part.size() <= kOnStack) {
    std::array<std::uint32_t, kOnStack> made;
    const std::size_t count = merges_.merge(made.data(), bytes_to_ids(part, made.data()));
    ids.insert(ids.end(), made.data(), made.data() + count);
  } else {
    std::vector<std::uint32_t> made(part.size());
    const std::size_t count = merges_.merge(made.data(), bytes_to_ids(part, made.data()));
    ids.insert(ids.end(), made.data(), made.data() + count);
  }
}

std::unique_ptr<Joints> ByteBpe::find_joints(std::span<const BpeMerge> merges) const {
  for (std::size_t b = 0; b < 256; ++b) {  // a byte that vanishes lets its neighbours meet
    const char byte = static_cast<char>(b);
    if (!vocabulary_.find({&byte, 1})) return nullptr;
  }
  auto joints = std::make_unique<Joints>();
  for (const BpeMerge& merge : merges) {
    const std::string_view left = bytes(merge.left), right = bytes(merge.right);
    if (left.empty() || right.empty() || bytes(merge.merged) != str_cat(left, right)) return nullptr;
    joints->add(left, right);
  }
  return joints;
}

std::size_t ByteBpe::bytes_to_ids(std::string_view piece, std::uint32_t* ids) const {
  std::size_t count = 0;
  for (const char c : piece) {
    const std::uint32_t id = byte_ids_[static_cast<unsigned char>(c)];
    ids[count] = id;
    count += id != kNoId ? 1 : 0;
  }
  return count;
}

std::vector<BpeMerge> merges_of_ranks(const std::vector<std::string>& pieces) {
  const BytesIndex index(pieces);
  std::array<std::uint32_t, 256> byte_ids;
  for (std::size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_ids[b] = index.find({&byte, 1}).value_or(BpeMerges::kNone);
  }
  std::vector<BpeMerge> merges;
  if (single_merges(pieces, byte_ids, merges)) return merges;
  merges.clear();
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    const std::string_view piece = pieces[rank];
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = index.find(piece.substr(0, cut)), right = index.find(piece.substr(cut));
      if (left && right) merges.push_back({*left, *right, static_cast<std::uint32_t>(rank)});
    }
  }
  return merges;
}

std::string bytes_to_visible(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const std::uint32_t code_point = kAlphabet.code_points[static_cast<unsigned char>(c)];
    if (code_point < 0x80) {
      out += static_cast<char>(code_point);
    } else {
      out += static_cast<char>(0xc0 | code_point >> 6);
      out += static_cast<char>(0x80 | (code_point & 0x3f));
    }
  }
  return out;
}

std::optional<std::string> visible_to_bytes(std::string_view visible) {
  std::string out;
  for (std::size_t at = 0; at < visible.size();) {
    std::uint32_t code_point = 0;
    const std::size_t length = read_character(visible, at, code_point);
    const int byte = length == 0 || code_point >= kAlphabet.bytes.size() ? -1 : kAlphabet.bytes[code_point];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    at += length;
  }
  return out;
}

}  // namespace megatron::tokenizer
