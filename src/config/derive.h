// Fills in what follows from the options: sizes, batch arithmetic, layout, schedule lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/draft.h"

namespace megatron::config {

/// Entries of GPT-2's vocabulary: what `validate` counts with where nothing names a vocabulary.
inline constexpr std::int64_t kDefaultVocabulary = 50257;

/// What could not be derived, for the rules; everything else of the draft is filled in as far as it goes.
struct Derived {
  std::string split_problem;                  // why the layers cannot be split
  std::string pattern_problem;                // what is wrong with --moe-layer-freq
  std::string rampup_problem, steps_problem;  // of a batch that changes
  std::int64_t rounded_from = 0;              // global batch before it was rounded down; 0: it was not
  bool automatic_split = false;
  bool sequence_parallel_turned_off = false;
  bool default_vocabulary = false;
  bool activation_conflict = false;
  bool too_large = false;  // counts would leave 64 bits
};

/// `launcher_world_size`: processes that mpirun or srun started, if any.
Derived derive(Draft& draft, std::optional<int> launcher_world_size);
/// The part of `derive` that concerns pipeline schedule, virtual stages and layers of stages.
void derive_pipeline(Draft& draft, Derived& out);
/// Sets the vocabulary and the padded size that follows from it, once a tokenizer is known.
void set_vocabulary(spec::ModelSpec& model, std::int64_t vocab_size, int tensor_parallel);

}  // namespace megatron::config
