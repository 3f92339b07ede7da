#include "config/option_docs.h"

#include <sstream>

#include "config/foreign_options.h"
#include "config/option_table.h"
#include "config/presets.h"

namespace megatron::config {
namespace {

constexpr const char* kDifferences[] = {
    "The loss is averaged over the trained tokens of the global batch (Megatron's --calculate-per-token-loss), always.",
    "Padded columns of the vocabulary never enter the softmax; Megatron lets them take part.",
    ("Reductions of gradients overlap with backward, and those of activations with weight gradients, always; only the "
     "head waits for the reduction of its dx."),
    "SIGTERM and SIGINT are always handled: the run saves and stops after the iteration.",
    "Layers that do not divide over the stages are split unevenly instead of refused; the split is printed.",
};

std::string argument_text(const Option& o) {
  std::string text;
  if (o.form == Form::set_true || o.form == Form::set_false) return "";
  if (o.form == Form::choice) {
    for (const std::string& c : o.choices) text += (text.empty() ? "" : "|") + c;
    return text;
  }
  if (o.form == Form::list) return "WORDS...";
  return o.type == Type::integer ? "N" : o.type == Type::real ? "X" : "TEXT";
}

std::string default_text(const Option& o, const Draft& fresh) {
  if (o.type == Type::truth || !o.has_default) return "";
  std::string shown = o.show(fresh);
  // Zero stands for "not set" where the range starts above it.
  if (shown.empty() || (o.min && *o.min >= 1 && shown == "0")) return "";
  return shown;
}

std::string help_text(const Option& o, const Draft& fresh) {
  std::string text = o.help;
  std::string lower = o.help;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (!o.unit.empty() && lower.find(o.unit) == std::string::npos) text += " In " + o.unit + ".";
  const std::string range = range_text(o), standard = default_text(o, fresh);
  if (!range.empty()) text += " Range: " + range + ".";
  if (!standard.empty()) text += " Default: " + standard + ".";
  if (o.ours) text += " (not in Megatron-LM)";
  return text;
}

std::string key_text(const Option& o) {
  if (o.form == Form::set_false) return o.dest + ": False";
  return o.dest;
}

std::string class_text(const ForeignOption& o) {
  return o.kind == ForeignClass::no_effect ? "no effect" : o.kind == ForeignClass::removed ? "removed" : "refused";
}

std::string spelled(const std::string& name, const std::vector<std::string>& aliases) {
  std::string text = name;
  for (const std::string& alias : aliases) text += ", " + alias;
  return text;
}

std::string escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

}  // namespace

std::string option_table_text() {
  std::ostringstream out;
  const Draft fresh;
  std::string topic;
  const OptionTable table;
  for (const Option& o : table.options()) {
    if (o.topic != topic) out << (topic.empty() ? "" : "\n") << o.topic << '\n';
    topic = o.topic;
    out << "  " << spelled(o.name, o.aliases) << ' ' << argument_text(o) << "\n      " << help_text(o, fresh) << '\n';
  }
  out << "\nSources: --config FILE (flat YAML), --preset NAME; preset < YAML < command line. Presets:\n";
  for (const Preset& p : presets()) out << "  " << p.name << ": " << p.help << '\n';
  return out.str();
}

std::string options_text() {
  std::ostringstream out;
  out << option_table_text() << "\nDifferent from Megatron-LM on purpose\n";
  for (const char* line : kDifferences) out << "  " << line << '\n';
  out << "\nOptions of Megatron-LM without a row of their own\n";
  const ForeignOptions foreign;
  for (const ForeignOption& o : foreign.options()) {
    out << "  " << o.names.front() << ": " << class_text(o) << "; " << o.reason;
    if (!o.instead.empty()) out << "; use " << o.instead;
    out << '\n';
  }
  return out.str();
}

std::string options_markdown() {
  std::ostringstream out;
  const Draft fresh;
  out << "# Options\n\nWritten by `megatron options --markdown`.\n\n"
         "A run takes its options from a preset (`--preset NAME`), a flat YAML file (`--config FILE`) and the command "
         "line; later sources win. The YAML key is an option's spelling with underscores, or the field named below.\n\n"
         "## Different from Megatron-LM on purpose\n\n";
  for (const char* line : kDifferences) out << "* " << line << '\n';
  std::string topic;
  const OptionTable table;
  for (const Option& o : table.options()) {
    if (o.topic != topic) out << "\n## " << o.topic << "\n\n| option | YAML key | meaning |\n|---|---|---|\n";
    topic = o.topic;
    const std::string argument = argument_text(o);
    out << "| `" << spelled(o.name, o.aliases) << (argument.empty() ? "" : " " + escaped(argument)) << "` | `"
        << key_text(o) << "` | " << escaped(help_text(o, fresh)) << " |\n";
  }
  out << "\n## Presets\n\n| name | what |\n|---|---|\n";
  for (const Preset& p : presets()) out << "| `" << p.name << "` | " << p.help << " |\n";
  out << "\n## Options of Megatron-LM without a row of their own\n\n"
         "*No effect*: accepted, the result is the same without it. *Refused*: not built. *Removed*: Megatron-LM "
         "refuses "
         "it too.\n\n| option | class | why | instead |\n|---|---|---|---|\n";
  const ForeignOptions foreign;
  for (const ForeignOption& o : foreign.options()) {
    out << "| `" << spelled(o.names.front(), {o.names.begin() + 1, o.names.end()}) << "` | " << class_text(o) << " | "
        << escaped(o.reason) << " | " << escaped(o.instead) << " |\n";
  }
  return out.str();
}

}  // namespace megatron::config
