#include "schedule/micro_batches.h"

#include "base/check.h"

namespace megatron::schedule {

MicroBatchCount constant_micro_batches(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                       std::int64_t data_parallel, bool decrease_if_needed) {
  if (micro_batch_size < 1) throw ConfigError(str_cat("--micro-batch-size ", micro_batch_size, ": must be at least 1"));
  if (global_batch_size < 1)
    throw ConfigError(str_cat("--global-batch-size ", global_batch_size, ": must be at least 1"));
  MEGATRON_CHECK_GE(data_parallel, std::int64_t{1}, "data-parallel size");
  const std::int64_t per_round = micro_batch_size * data_parallel;
  const std::int64_t rounds = global_batch_size / per_round;
  if (rounds * per_round == global_batch_size || (decrease_if_needed && rounds > 0))
    return {rounds, rounds * per_round};
  const std::int64_t above = (rounds + 1) * per_round;
  throw ConfigError(str_cat("--global-batch-size ", global_batch_size, ": must be a multiple of --micro-batch-size ",
                            micro_batch_size, " × data-parallel size ", data_parallel, " = ", per_round,
                            "; nearest: ", rounds > 0 ? str_cat(rounds * per_round, " or ", above) : str_cat(above)));
}

}  // namespace megatron::schedule
