// Rules between options, as a table, and the lines in which they report.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/draft.h"
#include "config/input.h"

namespace megatron::config {

/// What a command needs: `validate` accepts a run without data or length, `train` does not; `layout` commands
/// (generate, verify) bring the model from elsewhere and need no batch.
enum class ParseMode : std::uint8_t { validate, train, layout };

struct Findings {
  std::vector<std::string> errors, not_built, notices;
  std::vector<std::string> refused;  // errors here that Megatron-LM does not see: it ignores the option
  /// Options whose last value was not taken: what a rule finds about the value in its place is not worth a line.
  std::set<std::string> untaken;
};

/// What a rule sees: the derived run and what was given where.
class RuleContext {
 public:
  RuleContext(const Tables& tables, const Input& input, const Draft& draft, ParseMode mode, Findings& findings)
      : tables_(tables), input_(input), draft_(draft), mode_(mode), findings_(findings) {}

  const Draft& draft() const { return draft_; }
  const spec::RunSpec& run() const { return draft_.run; }
  const Switches& switches() const { return draft_.switches; }
  ParseMode mode() const { return mode_; }
  /// Named in any source, with whatever value. Options without a row of their own too.
  bool given(std::string_view name) const { return occurrence(name) != nullptr; }
  bool given_unknown(std::string_view name) const;
  /// Given by the user, not by a preset, and not as a switch that is left off.
  bool user_asks(std::string_view name) const;
  /// The last occurrence, which wins; null where there is none.
  const Occurrence* occurrence(std::string_view name) const;
  std::string word(std::string_view name) const;
  /// The file of --config; empty without one.
  std::string config_file() const;

  /// "--a 1 (run.yaml:2), --b 2 (default), --c 3 (derived): text"; derived is what follows from other options. Nothing
  /// where the value of one of them, or of an option that the text names, was not taken: that has been reported.
  void error(std::initializer_list<std::string_view> names, const std::string& text) {
    error(std::vector<std::string_view>(names), text);
  }
  void error(const std::vector<std::string_view>& names, const std::string& text);
  /// An error here in what Megatron-LM accepts and ignores.
  void refuse(std::initializer_list<std::string_view> names, const std::string& text);
  /// "--a and --b exclude each other", with their values before it, whatever these are.
  void exclusive(std::string_view a, std::string_view b);
  /// Reports an option that was not given.
  void required(std::string_view name, const std::string& why = {});
  void not_built(std::initializer_list<std::string_view> names, const std::string& text);
  void notice(const std::string& text) { findings_.notices.push_back(text); }

 private:
  std::string mention(const std::vector<std::string_view>& names) const;
  void add(std::vector<std::string>& list, const std::vector<std::string_view>& names, const std::string& text);

  const Tables& tables_;
  const Input& input_;
  const Draft& draft_;
  ParseMode mode_;
  Findings& findings_;
};

struct Rule {
  std::string_view name;
  void (*check)(RuleContext&);
};

std::vector<Rule> model_rules();
std::vector<Rule> parallel_rules();
std::vector<Rule> recompute_rules();
std::vector<Rule> pipeline_rules();
std::vector<Rule> optimizer_rules();
std::vector<Rule> batch_rules();
std::vector<Rule> data_rules();
/// Values without their switch: never ignored in silence.
std::vector<Rule> needs_rules();
/// Rules among options that are described or known by name only.
std::vector<Rule> foreign_rules();

/// The option that gives the sizes of the batch.
std::string_view batch_option(const spec::BatchSpec& batch);

/// Reports why the layers cannot be split, if they cannot.
void report_split_problem(RuleContext& context, const std::string& problem);

/// "--name words (origin)" with the words left out of a switch.
std::string mention_of(const Occurrence& occurrence);

}  // namespace megatron::config
