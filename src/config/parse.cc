#include "config/parse.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "config/derive.h"
#include "config/nearest.h"
#include "config/presets.h"

namespace megatron::config {
namespace {

std::vector<std::string> all_choices(const Option& option) {
  std::vector<std::string> all = option.choices;
  all.insert(all.end(), option.unbuilt_choices.begin(), option.unbuilt_choices.end());
  return all;
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string range_problem(const Option& option, const std::string& word) {
  const auto value = parse_magnitude(word);
  if (!value || (option.type != Type::integer && option.type != Type::real)) return {};
  const bool low = option.min && (option.above_min ? *value <= *option.min : *value < *option.min);
  const bool high = option.max && (option.below_max ? *value >= *option.max : *value > *option.max);
  if (!low && !high) return {};
  std::string text = "must be " + range_text(option);
  if (low && !option.above_min) text += "; nearest: " + format_real(*option.min);
  if (high && !option.below_max) text += "; nearest: " + format_real(*option.max);
  return text;
}

/// "; use X", or "; leave it out".
std::string advice(const std::string& instead) {
  if (instead.empty()) return {};
  return instead == "leave it out" ? "; leave it out" : "; use " + instead;
}

class Parser {
 public:
  Parser(std::span<const std::string> args, const ParseOptions& options) : options_(options) {
    read_sources(std::vector<std::string>(args.begin(), args.end()));
    apply_all();
    report_unknown();
    report_foreign();
    const Derived derived = derive(draft_, options.launcher_world_size);
    if (!source_missing_) run_rules(derived);
    report_not_built();
  }

  ParsedRun result() {
    auto tidy = [](std::vector<std::string>& lines) {
      std::sort(lines.begin(), lines.end());
      lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
    };
    tidy(findings_.errors);
    tidy(findings_.not_built);
    tidy(findings_.refused);
    std::set<std::string> given;
    for (const auto* list : {&input_.known, &input_.foreign})
      for (const Occurrence& o : *list) given.insert(o.name);
    return {draft_.run,
            draft_.described,
            findings_.notices,
            findings_.errors,
            findings_.refused,
            findings_.not_built,
            std::move(input_.rest),
            std::move(input_.own),
            {given.begin(), given.end()},
            countable_};
  }

 private:
  /// Preset and YAML file are named on the command line but count before it.
  void read_sources(const std::vector<std::string>& args) {
    std::vector<CommandOption> own = options_.own;
    own.push_back({"--config", true, ""});
    own.push_back({"--preset", true, ""});
    Input command_line;
    read_command_line(tables_, options_.preset, {}, "preset", input_);
    read_command_line(tables_, args, own, "command line", command_line);
    const std::size_t before = input_.problems.size();
    if (const auto preset = command_line.own.find("--preset"); preset != command_line.own.end())
      read_preset(preset->second);
    const std::size_t known = input_.known.size();
    if (const auto file = command_line.own.find("--config"); file != command_line.own.end())
      read_yaml_file(tables_, file->second, input_);
    source_missing_ = input_.problems.size() > before && input_.known.size() == known;
    auto append = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    append(input_.known, command_line.known);
    append(input_.foreign, command_line.foreign);
    append(input_.unknown, command_line.unknown);
    append(input_.problems, command_line.problems);
    input_.rest = command_line.rest;
    input_.own = command_line.own;
    findings_.errors = input_.problems;
  }

  void read_preset(const std::string& name) {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) {
      if (preset.name == name) return read_command_line(tables_, preset.args, {}, "preset " + name, input_);
      names.push_back(preset.name);
    }
    input_.problems.push_back(str_cat("--preset ", name, " (command line): known are ", joined(names, ", ")));
  }

  void error(const Occurrence& o, const std::string& text) {
    findings_.errors.push_back(str_cat(mention_of(o), ": ", text));
  }

  void apply_all() {
    for (const Occurrence& o : input_.known) apply(*tables_.options.find(o.name), o);
  }

  void apply(const Option& option, const Occurrence& o) {
    if (!o.words.empty() && !option.choices.empty()) {
      const std::string& word = o.words.front();
      if (contains(option.unbuilt_choices, word)) {
        unbuilt_choices_[option.name] =
            str_cat(mention_of(o), ": not built in this version; use ", joined(option.choices, " or "));
        findings_.untaken.insert(option.name);
        return;
      }
      if (!contains(option.choices, word)) {
        const std::string near = nearest_name(word, option.choices);
        findings_.untaken.insert(option.name);
        return error(
            o, str_cat("allowed are ", joined(all_choices(option), ", "), near.empty() ? "" : "; nearest: " + near));
      }
    }
    unbuilt_choices_.erase(option.name);
    findings_.untaken.erase(option.name);
    std::string problem = o.words.empty() || option.form == Form::list ? "" : range_problem(option, o.words.front());
    if (problem.empty()) problem = option.set(draft_, o.words);
    if (problem.empty()) return;
    findings_.untaken.insert(option.name);
    error(o, problem);
  }

  void report_unknown() {
    std::vector<std::string> names = tables_.options.names();
    const std::vector<std::string> foreign = tables_.foreign.names();
    names.insert(names.end(), foreign.begin(), foreign.end());
    for (const CommandOption& own : options_.own) names.push_back(own.name);
    names.insert(names.end(), {"--config", "--preset"});
    for (const Occurrence& o : input_.unknown) {
      const std::string hint = former_option_hint(o.name);
      const std::string near = nearest_name(o.name, names);
      error(o, str_cat("unknown option", !hint.empty() ? "; " + hint : near.empty() ? "" : "; nearest: " + near));
    }
    if (!input_.rest.empty() && options_.mode != ParseMode::layout)
      findings_.errors.push_back(str_cat("words that belong to no option: ", joined(input_.rest, " ")));
  }

  void report_foreign() {
    std::map<std::string, std::string> refused;
    for (const Occurrence& o : input_.foreign) {
      const ForeignOption& option = *tables_.foreign.find(o.name);
      const std::string problem = check_foreign_values(option, o.words);
      if (!problem.empty()) error(o, problem);
      if (option.kind == ForeignClass::removed) error(o, str_cat(o.name, " ", option.reason, advice(option.instead)));
      refused.erase(o.name);
      if (option.kind != ForeignClass::refused || is_harmless(option, o)) continue;
      refused[o.name] = str_cat(mention_of(o), ": ", option.reason, advice(option.instead));
    }
    for (const auto& [name, line] : refused) findings_.not_built.push_back(line);
  }

  static bool is_harmless(const ForeignOption& option, const Occurrence& o) {
    if (option.harmless.empty() || o.words.size() != 1) return false;
    const auto a = parse_real(option.harmless), b = parse_real(o.words.front());
    return o.words.front() == option.harmless || (a && b && *a == *b);
  }

  void run_rules(const Derived& derived) {
    RuleContext context(tables_, input_, draft_, options_.mode, findings_);
    for (auto table : {model_rules, parallel_rules, pipeline_rules, recompute_rules, batch_rules, optimizer_rules,
                       data_rules, needs_rules, foreign_rules})
      for (const Rule& rule : table()) rule.check(context);
    report_split_problem(context, derived.split_problem);
    if (!derived.pattern_problem.empty()) context.error({"--moe-layer-freq"}, derived.pattern_problem);
    countable_ = !derived.too_large;
    if (derived.too_large)
      context.error({"--num-layers", "--hidden-size", "--ffn-hidden-size"}, "more than 10^17 parameters");
    if (derived.activation_conflict)
      findings_.errors.push_back(
          "--swiglu, --geglu, --squared-relu, --openai-gelu, --activation-func: only one activation at a time");
    if (derived.automatic_split) context.notice(str_cat("layers do not divide over the stages: split ", split_text()));
    if (derived.sequence_parallel_turned_off)
      context.notice("--sequence-parallel is off: the tensor parallel size is 1");
    if (derived.default_vocabulary && options_.mode != ParseMode::layout && draft_.run.data.tokenizer_type.empty())
      context.notice(str_cat("no vocabulary: counted with ", kDefaultVocabulary, " (--vocab-size sets it)"));
    if (!draft_.switches.no_weight_decay_cond_type.empty())
      context.notice("--no-weight-decay-cond-type: use --apply-wd-to-qk-layernorm");
    if (!derived.rampup_problem.empty())
      context.error({"--rampup-batch-size", "--global-batch-size"}, derived.rampup_problem);
    if (!derived.steps_problem.empty()) context.error({"--step-batch-size-schedule"}, derived.steps_problem);
    if (derived.rounded_from > 0)
      context.notice(str_cat("global batch ", derived.rounded_from, " is rounded down to ",
                             draft_.run.batch.global_batch_size, " (--decrease-batch-size-if-needed)"));
  }

  std::string split_text() const {
    std::vector<std::string> counts;
    for (std::int64_t n : draft_.run.parallel.layers_per_stage) counts.push_back(str_cat(n));
    return joined(counts, " / ");
  }

  /// Options of described parts count as not built when their value is not the default.
  void report_not_built() {
    const Draft fresh;
    const RuleContext context(tables_, input_, draft_, options_.mode, findings_);
    for (const Option& option : tables_.options.options()) {
      if (option.not_built.empty() || !context.given(option.name)) continue;
      if (option.show(draft_) == option.show(fresh)) continue;
      const auto bar = option.not_built.find(" | ");
      findings_.not_built.push_back(str_cat(mention_of(*context.occurrence(option.name)), ": ",
                                            option.not_built.substr(0, bar), advice(option.not_built.substr(bar + 3))));
    }
    for (const auto& [name, line] : unbuilt_choices_) findings_.not_built.push_back(line);
  }

  const ParseOptions& options_;
  const Tables tables_;
  Input input_;
  Draft draft_;
  Findings findings_;
  std::map<std::string, std::string> unbuilt_choices_;
  bool countable_ = true;
  /// A preset or file that the run rests on could not be read: what follows from its absence is not worth a line.
  bool source_missing_ = false;
};

}  // namespace

ParsedRun parse_run(std::span<const std::string> args, const ParseOptions& options) {
  return Parser(args, options).result();
}

void require_accepted(const ParsedRun& run) {
  if (run.accepted() && run.rest.empty()) return;
  std::vector<std::string> lines = run.errors;
  lines.insert(lines.end(), run.refused.begin(), run.refused.end());
  for (const std::string& line : run.not_built) lines.push_back("not built: " + line);
  if (run.accepted()) lines.push_back("words that belong to no option: " + joined(run.rest, " "));
  throw ConfigError(joined(lines, "\n"));
}

}  // namespace megatron::config
