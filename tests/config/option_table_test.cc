#include "config/option_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "config/foreign_options.h"
#include "support/reference_data.h"

namespace megatron::config {
namespace {

/// In how many classes a name stands: with a row of its own, or known by name only.
int classes_of(const OptionTable& table, const ForeignOptions& foreign, const std::string& name) {
  return (table.find(name) != nullptr ? 1 : 0) + (foreign.find(name) != nullptr ? 1 : 0);
}

TEST(OptionTable, NamesAndKeysAreUnique) {
  const OptionTable table;
  const ForeignOptions foreign;
  std::set<std::string> names, keys;
  for (const std::string& name : table.names()) EXPECT_TRUE(names.insert(name).second) << name;
  for (const std::string& name : foreign.names()) EXPECT_TRUE(names.insert(name).second) << name;
  for (const Option& o : table.options()) EXPECT_TRUE(keys.insert(o.dest).second) << o.dest;
  for (const ForeignOption& o : foreign.options()) EXPECT_EQ(keys.count(o.key), 0u) << o.key;
}

TEST(OptionTable, EveryRowIsComplete) {
  for (const OptionTable table; const Option& o : table.options()) {
    EXPECT_FALSE(o.help.empty()) << o.name;
    EXPECT_FALSE(o.topic.empty()) << o.name;
    EXPECT_TRUE(o.set && o.show) << o.name;
    EXPECT_EQ(o.name.rfind("--", 0), 0u) << o.name;
    if (!o.not_built.empty()) {
      EXPECT_NE(o.not_built.find(" | "), std::string::npos) << o.name;
    }
  }
  for (const ForeignOptions foreign; const ForeignOption& o : foreign.options())
    EXPECT_FALSE(o.reason.empty()) << o.names[0];
}

TEST(OptionTable, NamesThatUsersKnow) {
  const OptionTable table;
  const ForeignOptions foreign;
  for (const char* name : {"--num-layers", "--hidden-size", "--tensor-model-parallel-size", "--sequence-parallel",
                           "--swiglu", "--disable-bias-linear", "--lr-decay-style", "--override-opt_param-scheduler",
                           "--no-check-for-nan-in-loss-and-grad"}) {
    EXPECT_NE(table.find(name), nullptr) << name;
    EXPECT_EQ(classes_of(table, foreign, name), 1) << name;
  }
  const std::map<std::string, ForeignClass> expected = {{"--use-flash-attn", ForeignClass::no_effect},
                                                        {"--overlap-grad-reduce", ForeignClass::no_effect},
                                                        {"--calculate-per-token-loss", ForeignClass::no_effect},
                                                        {"--tensorboard-dir", ForeignClass::refused},
                                                        {"--window-size", ForeignClass::refused},
                                                        {"--batch-size", ForeignClass::removed},
                                                        {"--checkpoint-activations", ForeignClass::removed}};
  for (const auto& [name, kind] : expected) {
    ASSERT_NE(foreign.find(name), nullptr) << name;
    EXPECT_EQ(foreign.find(name)->kind, kind) << name;
  }
}

struct ReferenceOption {
  std::vector<std::string> names;
  std::string form, standard;  // as the reference prints them
};

std::vector<ReferenceOption> reference_options() {
  std::ifstream file(megatron::testing::reference_dir() / "docs/megatron_reference.md");
  std::vector<ReferenceOption> options;
  bool in_appendix = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("# APPENDIX B", 0) == 0) in_appendix = true;
    if (!in_appendix || line.rfind("--", 0) != 0) continue;
    ReferenceOption option;
    std::istringstream names(line.substr(0, line.find(" | ")));
    for (std::string name; names >> name;) option.names.push_back(name);
    const auto file_column = line.rfind(" | "), standard = line.rfind(" | ", file_column - 1);
    option.form = line.substr(line.find(" | ") + 3, standard > line.find(" | ") ? standard - line.find(" | ") - 3 : 0);
    option.standard = line.substr(standard + 3, file_column - standard - 3);
    if (const auto at = option.standard.find("'default': "); at != std::string::npos) {
      option.standard = option.standard.substr(at + 11, option.standard.find('}', at) - at - 11);
    } else if (option.standard.rfind("field(default=", 0) == 0) {
      option.standard = option.standard.substr(14, option.standard.find(',') - 14);
    }
    options.push_back(std::move(option));
  }
  return options;
}

TEST(OptionTable, EachOptionOfMegatronIsInExactlyOneClass) {
  MEGATRON_REQUIRE_REFERENCE(megatron::testing::reference_dir() / "docs/megatron_reference.md");
  const OptionTable table;
  const ForeignOptions foreign;
  const auto reference = reference_options();
  EXPECT_EQ(reference.size(), 840u);
  std::set<std::string> all;
  for (const ReferenceOption& option : reference) {
    for (const std::string& name : option.names) {
      EXPECT_EQ(classes_of(table, foreign, name), 1) << name;
      all.insert(name);
    }
    if (option.form.find("BooleanOptionalAction") != std::string::npos) {
      const std::string twin = "--no-" + option.names[0].substr(2);
      EXPECT_EQ(classes_of(table, foreign, twin), 1) << twin;
      all.insert(twin);
    }
  }
  for (const std::string& name : foreign.names()) EXPECT_TRUE(all.count(name)) << name << " is no option of Megatron";
  for (const Option& option : table.options()) EXPECT_EQ(option.ours, all.count(option.name) == 0) << option.name;
}

TEST(OptionTable, DefaultsAreThoseOfMegatron) {
  MEGATRON_REQUIRE_REFERENCE(megatron::testing::reference_dir() / "docs/megatron_reference.md");
  const OptionTable table;
  const Draft fresh;
  int compared = 0;
  for (const ReferenceOption& reference : reference_options()) {
    const Option* option = table.find(reference.names[0]);
    if (option == nullptr || option->type == Type::truth) continue;
    std::string standard = reference.standard, shown = option->show(fresh);
    if (standard == "2 ** 32") standard = "4294967296";
    if (standard.size() > 1 && standard.front() == '\'') standard = standard.substr(1, standard.size() - 2);
    if (standard == "None" || standard == "field(default_factory=list)") {
      // Not set: no text, or a zero that stands for "to be derived"; or a default that Megatron fills in later.
      const std::set<std::string> filled_later = {"--rotary-seq-len-interpolation-factor", "--recompute-method",
                                                  "--recompute-num-layers"};
      if (filled_later.count(option->name) == 0) {
        EXPECT_TRUE(shown.empty() || shown == "0") << option->name << " " << shown;
      }
    } else if (const auto a = parse_real(standard), b = parse_real(shown); a && b) {
      EXPECT_EQ(*a, *b) << option->name;
    } else if (option->name != "--null-tokenizer-pad-id" &&        // unset here, -1 in the tokenizer
               option->name != "--num-dataset-builder-threads") {  // unset here: all cores, with the same result
      EXPECT_EQ(shown, standard) << option->name;
    }
    ++compared;
  }
  EXPECT_GT(compared, 90);
}

}  // namespace
}  // namespace megatron::config
