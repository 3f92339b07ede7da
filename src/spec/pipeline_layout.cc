// Pipeline layout strings: see layer_split.h.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "spec/layer_split.h"

namespace megatron::spec {
namespace {

constexpr int kMaxRepeat = 100000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The number at `at`, or -1; moves `at` behind it.
int read_number(std::string_view text, std::size_t& at) {
  if (at >= text.size() || !is_digit(text[at])) return -1;
  int value = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > kMaxRepeat)
      throw ConfigError(str_cat("pipeline layout: a repeat must be at most ", kMaxRepeat, "; nearest: ", kMaxRepeat));
  }
  return value;
}

/// Appends `text` that many times; repeats of repeats must not fill the memory.
void append_repeated(std::string_view text, int times, std::string& out) {
  constexpr std::size_t kMaxLetters = 1'000'000;
  if (out.size() + text.size() * static_cast<std::size_t>(times) > kMaxLetters)
    throw ConfigError(str_cat("pipeline layout: more than ", kMaxLetters, " letters when repeats are written out"));
  for (int i = 0; i < times; ++i) out += text;
}

/// "(x)*n" → n times x; brackets do not nest.
std::string expand_brackets(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t close = text[at] == '(' ? text.find(')', at) : std::string_view::npos;
    if (close == std::string_view::npos || text.substr(at + 1, close - at - 1).find('(') != std::string_view::npos ||
        close + 1 >= text.size() || text[close + 1] != '*') {
      out += text[at++];
      continue;
    }
    std::size_t after = close + 2;
    const int times = read_number(text, after);
    if (times < 0) {
      out += text[at++];
      continue;
    }
    append_repeated(text.substr(at + 1, close - at - 1), times, out);
    at = after;
  }
  return out;
}

/// "x*n" → n times x.
std::string expand_letters(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::size_t after = at + 2;
    const int times = at + 1 < text.size() && text[at + 1] == '*' ? read_number(text, after) : -1;
    if (times < 0) {
      out += text[at];
    } else {
      append_repeated(text.substr(at, 1), times, out);
      at = after - 1;
    }
  }
  return out;
}

/// Of a character that is left when all repeats are written out.
std::string symbol_problem(char c) {
  if (c == '(' || c == ')')
    return "brackets stand around what is repeated, are not nested, and end with * and a number, as in (t|)*3";
  if (c == '*' || is_digit(c)) return "a repeat is a symbol or a bracket, then * and a number, as in t*3 or (t|)*3";
  return str_cat("\"", c, "\" is none of E (embedding), t (layer), L (loss) and | (next stage)");
}

std::string shortened(std::string_view layout) {
  constexpr std::size_t kShown = 60;
  return layout.size() <= kShown ? std::string(layout) : str_cat(layout.substr(0, kShown), "...");
}

std::int64_t count_of(const std::string& stage, char kind) { return std::count(stage.begin(), stage.end(), kind); }

std::int64_t total_of(const std::vector<std::string>& stages, char kind) {
  return std::accumulate(stages.begin(), stages.end(), std::int64_t{0},
                         [kind](std::int64_t sum, const std::string& s) { return sum + count_of(s, kind); });
}

void check_ends(const std::vector<std::string>& stages) {
  const std::string all = std::accumulate(stages.begin(), stages.end(), std::string());
  if (all.empty()) throw ConfigError("pipeline layout: no layer at all");
  if (all.front() != 'E' || total_of(stages, 'E') != 1)
    throw ConfigError("pipeline layout: the embedding E must be the first layer, once");
  if (all.back() != 'L' || total_of(stages, 'L') != 1)
    throw ConfigError("pipeline layout: the loss L must be the last layer, once");
  const auto mtp = all.find('m');
  if (mtp != std::string::npos && all.find('t', mtp) != std::string::npos)
    throw ConfigError("pipeline layout: multi-token-prediction layers m stand after all decoder layers t");
}

void check_mtp(const std::vector<std::string>& stages, int pp, std::int64_t mtp_num_layers) {
  if (total_of(stages, 'm') != mtp_num_layers)
    throw ConfigError(str_cat("pipeline layout: ", counted(total_of(stages, 'm'), "multi-token-prediction layer"),
                              ", the model has ", mtp_num_layers));
  std::int64_t holders = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (count_of(stages[i], 'm') == 0) continue;
    ++holders;
    const auto chunk = i / static_cast<std::size_t>(pp);
    if (chunk + 1 != stages.size() / static_cast<std::size_t>(pp))
      throw ConfigError("pipeline layout: multi-token-prediction layers m belong into the last chunk");
    if (pp > 1 && i % static_cast<std::size_t>(pp) == 0)
      throw ConfigError("pipeline layout: multi-token-prediction layers m cannot stand on the first pipeline rank");
  }
  if (holders > 1) throw ConfigError("pipeline layout: all multi-token-prediction layers m belong into one stage");
}

}  // namespace

std::vector<std::string> parse_pipeline_layout(std::string_view layout) {
  std::string text = expand_letters(expand_brackets(layout));
  std::erase(text, ',');
  std::vector<std::string> stages(1);
  for (char c : text) {
    if (c == '|') {
      stages.emplace_back();
    } else if (c == 'E' || c == 't' || c == 'm' || c == 'L') {
      stages.back() += c;
    } else {
      throw ConfigError(str_cat("pipeline layout \"", shortened(layout), "\": ", symbol_problem(c)));
    }
  }
  return stages;
}

std::vector<std::vector<LayerRange>> split_by_layout(std::string_view layout, int pipeline_parallel,
                                                     std::int64_t num_layers, std::int64_t mtp_num_layers) {
  const std::vector<std::string> stages = parse_pipeline_layout(layout);
  const auto pp = static_cast<std::size_t>(pipeline_parallel);
  if (stages.size() % pp != 0)
    throw ConfigError(str_cat("pipeline layout: ", stages.size(), stages.size() == 1 ? " stage does" : " stages do",
                              " not divide by pipeline size ", pp, "; nearest: ", stages.size() / pp * pp + pp,
                              " stages (an empty one between two bars counts)"));
  check_ends(stages);
  if (total_of(stages, 't') != num_layers)
    throw ConfigError(
        str_cat("pipeline layout: ", counted(total_of(stages, 't'), "decoder layer"), ", the model has ", num_layers));
  check_mtp(stages, pipeline_parallel, mtp_num_layers);
  std::vector<std::vector<LayerRange>> ranges(pp);
  std::int64_t next = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::int64_t count = count_of(stages[s], 't');
    ranges[s % pp].push_back({next, count});
    next += count;
  }
  return ranges;
}

bool layout_has_standalone_mtp(std::string_view layout) {
  for (const std::string& stage : parse_pipeline_layout(layout))
    if (count_of(stage, 'm') > 0) return count_of(stage, 'L') == 0;
  return false;
}

}  // namespace megatron::spec
