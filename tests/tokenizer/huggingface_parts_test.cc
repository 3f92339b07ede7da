// Streams of every kind of decoder, and post-processors against what the library `tokenizers` gave for them
// (make_post_processor_cases.py).
#include <gtest/gtest.h>

#include <map>

#include "huggingface_cases.h"

namespace megatron::tokenizer {
namespace {

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.length == 1 && static_cast<unsigned char>(text[at]) >= 0x80) return false;
    at += c.length;
  }
  return true;
}

/// The text in the parts in which a stream gives it.
std::vector<std::string> streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder stream(tokenizer);
  std::vector<std::string> parts;
  for (const std::int64_t id : ids) parts.push_back(stream.push(id));
  parts.push_back(stream.finish());
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

void expect_streams(const Tokenizer& tokenizer, const Ids& ids, const std::string& what) {
  const std::string whole = tokenizer.decode(ids);
  const std::vector<std::string> parts = streamed(tokenizer, ids);
  EXPECT_EQ(joined(parts), whole) << what;
  if (!is_utf8(whole)) return;
  for (const std::string& part : parts) EXPECT_TRUE(is_utf8(part)) << what << ": '" << part << "' of '" << whole << "'";
}

// Ids of texts, and ids in any order, markers among them: more of them than a stream keeps.
TEST(HuggingFace, StreamsEqualTheWholeAndNeverSplitACharacter) {
  Random r(5);
  for (const json& c : cases()["cases"]) {
    const auto tokenizer = load(file_of(c));
    EXPECT_TRUE(tokenizer->streams()) << c["name"];
    for (std::size_t i = 0; i < 60; ++i) expect_streams(*tokenizer, tokenizer->encode(random_text(i)), c["name"]);
    for (int round = 0; round < 6; ++round) {
      Ids ids(400);
      for (std::int64_t& id : ids)
        id = static_cast<std::int64_t>(
            r.next(r.next(4) == 0 ? 12 : static_cast<std::uint64_t>(tokenizer->vocab_size())));
      expect_streams(*tokenizer, ids, c["name"]);
    }
  }
}

/// Case "gpt2" without its pre-tokenizer's spelling, with another decoder.
std::unique_ptr<Tokenizer> with_decoder(const char* name, const json& decoder) {
  json file = file_of(case_named(name));
  file["decoder"] = decoder;
  return load(file);
}

// Every kind of decoder alone, over characters in tokens of their own, with what it takes back in the text.
TEST(HuggingFace, StreamsOfEveryDecoderEqualTheWhole) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "e w"}}}, {"content", "#"}};
  const std::vector<json> decoders = {
      nullptr,
      {{"type", "ByteLevel"}},
      {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}},
      {{"type", "WordPiece"}, {"prefix", "h"}, {"cleanup", false}},
      {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}},
      {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "never"}},
      {{"type", "ByteFallback"}},
      {{"type", "Fuse"}},
      {{"type", "Strip"}, {"content", "\u2581"}, {"start", 1}, {"stop", 1}},
      {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
      {{"type", "BPEDecoder"}, {"suffix", "e"}},
      {{"type", "CTC"}, {"pad_token", "<unk>"}, {"word_delimiter_token", "\u2581"}, {"cleanup", true}}};
  const auto sequence = [](const std::vector<json>& parts) { return json{{"type", "Sequence"}, {"decoders", parts}}; };
  const std::string text = "hello , the world . isn 't it \u4f60\u597d \U0001f600! we do not  know";
  for (const char* name : {"llama2", "t5"}) {
    for (const json& decoder : decoders) {
      std::vector<json> all = {decoder};
      if (!decoder.is_null())
        for (const auto& parts : std::vector<std::vector<json>>{
                 {decoder, {{"type", "Fuse"}}}, {{{"type", "Fuse"}}, decoder}, {{{"type", "ByteFallback"}}, decoder}})
          all.push_back(sequence(parts));
      for (const json& one : all) {
        const auto tokenizer = with_decoder(name, one);
        expect_streams(*tokenizer, tokenizer->encode(text + text), one.dump());
      }
    }
    // What may reach back over tokens comes at the end, whole.
    const auto late = with_decoder(name, sequence({decoders[9], {{"type", "Fuse"}}, replace}));
    EXPECT_FALSE(late->streams());
    const Ids ids = late->encode(text);
    EXPECT_NE(late->decode(ids).find("th#orld"), std::string::npos) << late->decode(ids);
    EXPECT_EQ(streamed(*late, ids).back(), late->decode(ids));
  }
}

// A marker that decodes to nothing stands between words: the space behind it stays.
TEST(HuggingFace, StreamsKeepSpacesBehindMarkers) {
  const auto tokenizer = load(file_of(case_named("llama2")));
  Ids ids = tokenizer->encode("hello");
  const Ids more = tokenizer->encode("the world");
  ids.push_back(*tokenizer->bos());
  ids.insert(ids.end(), more.begin(), more.end());
  expect_streams(*tokenizer, ids, "bos");
  ids.push_back(*tokenizer->eod());
  ids.insert(ids.end(), more.begin(), more.end());
  expect_streams(*tokenizer, ids, "eod");
}

json post_processor_cases() {
  return json::parse(slurp(std::string(MEGATRON_SOURCE_DIR) + "/tests/tokenizer/data/post_processor_cases.json"));
}

std::unique_ptr<Tokenizer> with_post_processor(const std::string& base, const json& post) {
  json file = file_of(case_named(base));
  file["post_processor"] = post;
  return load(file);
}

TEST(PostProcessors, IdsEqualTheLibrary) {
  const json all = post_processor_cases();
  for (const json& c : all["cases"]) {
    const auto tokenizer = with_post_processor(c["base"], c["post_processor"]);
    for (std::size_t i = 0; i < all["texts"].size(); ++i) {
      Ids ids;
      tokenizer->encode(all["texts"][i].get<std::string>(), {.parse_special = true, .ends = TextEnds::model}, ids);
      EXPECT_EQ(ids, c["ids"][i].get<Ids>()) << c["post_processor"] << " " << all["texts"][i];
    }
  }
}

void count_types(const json& post, const std::string& inside, std::map<std::string, int>& seen) {
  if (!post.is_object()) return;
  ++seen[post["type"].get<std::string>() + inside];
  for (const json& part : post.value("processors", json::array())) count_types(part, " in a sequence", seen);
}

TEST(PostProcessors, CasesHoldEachTwiceAndInSequences) {
  std::map<std::string, int> seen;
  const json all = post_processor_cases();
  for (const json& c : all["cases"]) count_types(c["post_processor"], "", seen);
  for (const char* name : {"TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing"}) {
    EXPECT_GE(seen[name] + seen[std::string(name) + " in a sequence"], 3) << name;
    EXPECT_GE(seen[std::string(name) + " in a sequence"], 2) << name;
  }
  EXPECT_GE(seen["Sequence"], 8);
  EXPECT_GE(seen["BertProcessing"], 2);
  EXPECT_GE(seen["RobertaProcessing"], 2);
  EXPECT_GE(seen["TemplateProcessing"], 2);
}

TEST(PostProcessors, MoreThanALevelBehindATemplateIsRefusedByItsPlace) {
  const json once = file_of(case_named("llama2"))["post_processor"];
  for (const json& second : {once, json{{"type", "BertProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 1}}}}) {
    try {
      with_post_processor("llama2", {{"type", "Sequence"}, {"processors", {once, second}}});
      ADD_FAILURE() << second;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("post_processor.processors[1]: a "), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace megatron::tokenizer
