#include "comm/mpi/wire.h"

#include <cstring>
#include <type_traits>

namespace megatron::comm {

namespace {

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof(T));
  }
  void put_text(const std::string& text) {
    put(static_cast<std::int64_t>(text.size()));
    append(text.data(), text.size());
  }
  void append(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out.insert(out.end(), bytes, bytes + size);
  }
  std::vector<std::byte> out;
};

class Reader {
 public:
  Reader(const std::vector<std::byte>& bytes, int from) : bytes_(bytes), from_(from) {}
  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::string get_text() {
    const auto size = get<std::int64_t>();
    if (size < 0) bad();
    const std::byte* data = take(static_cast<std::size_t>(size));
    return {reinterpret_cast<const char*>(data), static_cast<std::size_t>(size)};
  }
  std::vector<std::byte> get_bytes(std::int64_t size) {
    if (size < 0) bad();
    const std::byte* data = take(static_cast<std::size_t>(size));
    return {data, data + size};
  }
  std::int64_t left() const { return static_cast<std::int64_t>(bytes_.size() - at_); }
  [[noreturn]] void bad() const {
    throw CommError(str_cat("rank ", from_, " sent a note that this program does not understand (", bytes_.size(),
                            " bytes): do all ranks run the same build?"));
  }

 private:
  const std::byte* take(std::size_t size) {
    if (size > bytes_.size() - at_) bad();
    const std::byte* data = bytes_.data() + at_;
    at_ += size;
    return data;
  }
  const std::vector<std::byte>& bytes_;
  int from_;
  std::size_t at_ = 0;
};

void put_key(Writer& w, const Key& key) {
  w.put(key.kind);
  w.put(key.reduce_op);
  w.put(key.dtype);
  w.put(key.root);
  w.put(static_cast<std::int64_t>(key.counts.size()));
  w.append(key.counts.data(), key.counts.size() * sizeof(std::int64_t));
  w.put_text(key.label);
}

Key get_key(Reader& r) {
  Key key;
  key.kind = r.get<OperationKind>();
  key.reduce_op = r.get<ReduceOp>();
  key.dtype = r.get<DType>();
  key.root = r.get<int>();
  const auto count = r.get<std::int64_t>();
  if (count < 0 || count > r.left() / static_cast<std::int64_t>(sizeof(std::int64_t))) r.bad();
  for (std::int64_t i = 0; i < count; ++i) key.counts.push_back(r.get<std::int64_t>());
  key.label = r.get_text();
  return key;
}

void put_culprit(Writer& w, const Note& note) {
  w.put(note.culprit.rank);
  w.put_text(note.culprit.operation);
  w.put_text(note.culprit.message);
  w.put(note.exit_status);
}

void get_culprit(Reader& r, Note& note) {
  note.culprit.rank = r.get<int>();
  note.culprit.operation = r.get_text();
  note.culprit.message = r.get_text();
  note.exit_status = r.get<int>();
}

}  // namespace

std::vector<std::byte> encode(const Note& note) {
  Writer w;
  w.out.reserve(160 + note.data.size());
  w.put(note.kind);
  switch (note.kind) {
    case NoteKind::collective:
    case NoteKind::message:
      w.put(note.group);
      w.put(note.sequence);
      put_key(w, note.key);
      w.put(note.tag);
      w.put(note.rows);
      w.put(note.bytes);
      w.put(static_cast<std::int64_t>(note.data.size()));
      w.append(note.data.data(), note.data.size());
      break;
    case NoteKind::claim:
    case NoteKind::abort:
      put_culprit(w, note);
      break;
    case NoteKind::status_request:
    case NoteKind::finished:
      w.put(note.number);
      break;
    case NoteKind::status:
      w.put(note.number);
      w.put_text(note.record.instruction);
      w.put(note.record.iteration);
      w.put_text(note.record.operation);
      w.put(note.record.phase);
      w.put(note.record.seconds);
      break;
  }
  return w.out;
}

Note decode(const std::vector<std::byte>& bytes, int from) {
  Reader r(bytes, from);
  Note note;
  note.kind = r.get<NoteKind>();
  switch (note.kind) {
    case NoteKind::collective:
    case NoteKind::message:
      note.group = r.get<std::uint64_t>();
      note.sequence = r.get<std::int64_t>();
      note.key = get_key(r);
      note.tag = r.get<int>();
      note.rows = r.get<std::int64_t>();
      note.bytes = r.get<std::int64_t>();
      note.data = r.get_bytes(r.get<std::int64_t>());
      break;
    case NoteKind::claim:
    case NoteKind::abort:
      get_culprit(r, note);
      break;
    case NoteKind::status_request:
    case NoteKind::finished:
      note.number = r.get<std::int64_t>();
      break;
    case NoteKind::status:
      note.number = r.get<std::int64_t>();
      note.record.instruction = r.get_text();
      note.record.iteration = r.get<std::int64_t>();
      note.record.operation = r.get_text();
      note.record.phase = r.get<RankPhase>();
      note.record.seconds = r.get<double>();
      break;
    default:
      r.bad();
  }
  if (r.left() != 0) r.bad();
  return note;
}

std::uint64_t group_id(const std::string& name, const std::vector<int>& members, int instance) {
  std::uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
  const auto mix = [&hash](const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001B3U;
  };
  mix(name.data(), name.size());
  mix(members.data(), members.size() * sizeof(int));
  mix(&instance, sizeof(instance));
  return hash;
}

}  // namespace megatron::comm
