#include "schedule/program_text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/check.h"
#include "schedule/passes.h"

namespace megatron::schedule {
namespace {

/// More would not be a pipeline but a mistake in a number.
constexpr int kMostStages = 1 << 20;

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::vector<Instruction> parse_line(const std::string& line, std::int64_t number) {
  std::vector<Instruction> list;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, ',');) {
    try {
      list.push_back(parse_instruction(trimmed(word)));
    } catch (const Error& error) {
      throw Error(str_cat("line ", number, ": ", error.what()));
    }
    const Instruction& instruction = list.back();
    if (!is_compute(instruction.op))
      throw Error(str_cat("line ", number, ": ", to_text(instruction),
                          ": sends and receives are added by the program; leave them out"));
    if (instruction.stage >= kMostStages)
      throw Error(str_cat("line ", number, ": ", to_text(instruction), " is of a stage beyond ", kMostStages));
  }
  return list;
}

/// The placement of `num_stages` stages that fits most lists; the checks name what stands elsewhere.
spec::StagePlacement placement_of(const std::vector<std::vector<Instruction>>& lists, int num_stages) {
  const int p = static_cast<int>(lists.size());
  const spec::StagePlacement linear{p, std::max(1, (num_stages + p - 1) / p)};
  if (linear.num_chunks != 2) return linear;
  const spec::StagePlacement v{p, 2, spec::PlacementKind::v};
  std::int64_t fits_linear = 0, fits_v = 0;
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (const Instruction& instruction : lists[rank]) {
      fits_linear += static_cast<std::size_t>(linear.rank_of(instruction.stage)) == rank ? 1 : 0;
      fits_v += static_cast<std::size_t>(v.rank_of(instruction.stage)) == rank ? 1 : 0;
    }
  return fits_v > fits_linear ? v : linear;
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text;
  for (const std::vector<Instruction>& list : program.lists) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) text += ',';
      text += to_text(list[i]);
    }
    text += '\n';
  }
  return text;
}

Program parse_program(const std::string& text) {
  Program program;
  std::istringstream in(text);
  std::int64_t number = 0;
  int num_stages = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (trimmed(line).empty()) continue;
    program.lists.push_back(parse_line(line, number));
    for (const Instruction& instruction : program.lists.back())
      num_stages = std::max(num_stages, instruction.stage + 1);
  }
  if (program.lists.empty()) throw Error("no rank: one line of passes per rank is expected, as in 0F0,0B0");
  program.placement = placement_of(program.lists, num_stages);
  return program;
}

Program read_named_program(const std::string& path) {
  std::error_code ignored;
  std::ifstream in(path, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(path, ignored)) throw IoError("cannot be read");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) throw IoError("cannot be read");
  Program program = parse_program(text);
  validate_passes(program);
  return program;
}

Program read_program(const std::string& path) {
  try {
    return read_named_program(path);
  } catch (const IoError& error) {
    throw IoError(str_cat(path, ": ", error.what()));
  } catch (const Error& error) {
    throw ConfigError(str_cat(path, ": ", error.what()));
  }
}

}  // namespace megatron::schedule
