#include "tokenizer/post_processors.h"

#include "base/check.h"

namespace megatron::tokenizer {
namespace {

constexpr int kMaxDepth = 16;

class Reader {
 public:
  explicit Reader(std::int64_t vocab_size) : vocab_size_(vocab_size) {}

  EndMarks read(const JsonNode& node, int depth) {
    const std::string type = node.required("type").string();
    if (type == "ByteLevel") {  // changes offsets only
      node.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      return {};
    }
    if (type == "Sequence") return read_sequence(node, depth);
    // The library takes the pieces of a template for two texts then, or fails.
    if (template_seen_) node.refuse(str_cat("a ", type, " behind a TemplateProcessing is not supported"));
    if (type == "TemplateProcessing") return read_template(node);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      node.allow_only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      return {{pair_id(node.required("cls"))}, {pair_id(node.required("sep"))}};
    }
    node.refuse(str_cat("unknown post-processor \"", type,
                        "\"; known are TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence"));
  }

 private:
  EndMarks read_sequence(const JsonNode& node, int depth) {
    node.allow_only({"type", "processors"});
    if (depth >= kMaxDepth) node.refuse("is nested too deeply");
    EndMarks all;
    node.required("processors").for_each_element([&](std::size_t, const JsonNode& part) {
      const EndMarks outer = read(part, depth + 1);  // stands around what the earlier ones made
      all.before.insert(all.before.begin(), outer.before.begin(), outer.before.end());
      all.after.insert(all.after.end(), outer.after.begin(), outer.after.end());
    });
    return all;
  }

  EndMarks read_template(const JsonNode& node) {
    template_seen_ = true;
    node.allow_only({"type", "single", "pair", "special_tokens"});
    const JsonNode specials = node.required("special_tokens");
    EndMarks marks;
    bool text_seen = false;
    node.required("single").for_each_element([&](std::size_t, const JsonNode& piece) {
      piece.allow_only({"SpecialToken", "Sequence"});
      if (piece["Sequence"].exists()) {
        const JsonNode id = piece["Sequence"].required("id");
        if (id.string() != "A") id.refuse("must be \"A\" in the template for one text");
        if (text_seen) id.refuse("the text stands twice in the template");
        text_seen = true;
        return;
      }
      const JsonNode name = piece.required("SpecialToken").required("id");
      const JsonNode token = specials[name.string()];
      if (!token.exists()) name.refuse(str_cat("\"", name.string(), "\" is not among the special_tokens"));
      token.required("ids").for_each_element(
          [&](std::size_t, const JsonNode& id) { (text_seen ? marks.after : marks.before).push_back(checked(id)); });
    });
    if (!text_seen) node["single"].refuse("the text does not stand in the template");
    return marks;
  }

  /// The id of ["[SEP]", 102].
  std::int64_t pair_id(const JsonNode& node) const { return checked(node.element(1)); }

  std::int64_t checked(const JsonNode& node) const {
    const std::int64_t id = node.integer();
    if (id < 0 || id >= vocab_size_)
      node.refuse(str_cat("id ", id, " is outside the vocabulary [0, ", vocab_size_, ")"));
    return id;
  }

  std::int64_t vocab_size_;
  bool template_seen_ = false;
};

}  // namespace

EndMarks read_post_processor(const JsonNode& node, std::int64_t vocab_size) {
  if (node.is_null()) return {};
  return Reader(vocab_size).read(node, 0);
}

}  // namespace megatron::tokenizer
