#include "train/assemble.h"

#include <numeric>
#include <utility>

#include "kernels/elementwise.h"
#include "model/build.h"
#include "optim/parameter_buffer.h"
#include "optim/parameter_shards.h"
#include "spec/model_count.h"
#include "train/machine.h"
#include "train/signals.h"

namespace megatron::train {
namespace {

/// Beyond that a world of threads only exhausts the machine: each rank has stacks, buffers and communicators of its
/// own.
constexpr int kMaxThreadRanks = 512;

/// Elements of the logical tensors that this rank counts: owned pieces, tied uses not.
std::int64_t owned_elements(const std::vector<nn::Parameter*>& parameters) {
  std::int64_t count = 0;
  for (const nn::Parameter* parameter : parameters) {
    if (parameter->tied_use) continue;
    for (const spec::Piece& piece : parameter->sharding.pieces)
      if (piece.owned) count += piece.global.numel();
  }
  return count;
}

/// A line every two seconds.
std::function<void(const data::PreprocessProgress&)> tokenising_progress(
    const std::function<void(const std::string&)>& say) {
  return [say, start = monotonic_seconds(), told = monotonic_seconds(),
          resumed = false](const data::PreprocessProgress& progress) mutable {
    if (progress.resumed && !std::exchange(resumed, true))
      say(str_cat("resumed at document ", progress.resumed_documents));
    const double now = monotonic_seconds();
    if (now - told < 2.0) return;
    told = now;
    const double rate = static_cast<double>(progress.bytes - progress.resumed_bytes) / 1e6 / (now - start);
    const std::int64_t part = progress.input_size > 0 ? 100 * progress.input_done / progress.input_size : 0;
    say(str_cat("tokenised ", progress.documents, " documents, ", part, "% (", static_cast<std::int64_t>(rate),
                " MB/s)"));
  };
}

std::int64_t sum_over(kernels::Executor& exec, const mesh::Group& group, std::int64_t value, std::string_view label) {
  if (group.trivial()) return value;
  Tensor tensor = exec.empty({1}, DType::int64, MemoryKind::communication);
  tensor.data<std::int64_t>()[0] = value;
  return std::as_const(tensor = group.all_reduce(std::move(tensor), label)).data<std::int64_t>()[0];
}

}  // namespace

bool uses_mpi(const spec::RunSpec& run) {
  return run.distributed_backend.has_value() ? *run.distributed_backend == "mpi" : comm::launcher_world_size() > 0;
}

void check_thread_ranks(const spec::RunSpec& run) {
  if (!uses_mpi(run) && run.parallel.world_size > kMaxThreadRanks)
    throw ConfigError(str_cat("--world-size ", run.parallel.world_size, ": one process runs at most ", kMaxThreadRanks,
                              " ranks as threads; start more with mpirun or srun"));
}

std::unique_ptr<comm::World> create_world(const spec::RunSpec& run, const std::atomic<int>* stop_signal,
                                          std::function<void()> on_failure) {
  comm::WorldOptions options;
  options.stop_signal = stop_signal;
  options.on_failure = std::move(on_failure);
  options.world_size = run.parallel.world_size;
  options.timeout_seconds =
      run.parallel.distributed_timeout_seconds.value_or(60.0 * run.parallel.distributed_timeout_minutes);
  if (run.parallel.distributed_timeout_seconds.has_value()) options.timeout_option = "--distributed-timeout-seconds";
  if (run.fault.inject_fault.has_value()) {
    options.faults = comm::parse_fault_plan(*run.fault.inject_fault);
    comm::check_fault_plan(options.faults, options.world_size, {});
  }
  check_thread_ranks(run);
  return uses_mpi(run) ? comm::create_mpi_world(options) : comm::create_local_world(options);
}

std::shared_ptr<const tokenizer::Tokenizer> create_tokenizer(const spec::RunSpec& run) {
  if (run.data.tokenizer_type.empty()) return nullptr;
  tokenizer::TokenizerOptions options;
  const spec::DataSpec& data = run.data;
  // The others' vocabularies are those of their files.
  if (data.tokenizer_type == "NullTokenizer" && run.model.vocab_size > 0) options.vocab_size = run.model.vocab_size;
  options.null_eod_id = data.null_tokenizer_eod_id;
  options.null_pad_id = data.null_tokenizer_pad_id;
  options.vocab_file = data.vocab_file;
  options.merge_file = data.merge_file;
  options.tokenizer_model = data.tokenizer_model;
  options.tiktoken_pattern = data.tiktoken_pattern;
  options.tiktoken_num_special_tokens = data.tiktoken_num_special_tokens;
  options.special_tokens = data.tokenizer_special_tokens;
  options.vocab_extra_ids = data.vocab_extra_ids;
  options.sentencepiece_legacy = data.tokenizer_sentencepiece_legacy;
  options.sentencepiece_keep_extra_whitespaces = !data.tokenizer_sentencepiece_ignore_extra_whitespaces;
  return tokenizer::create_tokenizer(data.tokenizer_type, options);
}

data::Datasets open_datasets(const spec::RunSpec& run, const tokenizer::Tokenizer* tokenizer,
                             const data::RequestedSamples& requested,
                             const std::function<void(const std::string&)>& say, const std::atomic<int>* stop_signal) {
  data::BuildOptions options;
  options.seq_length = run.model.seq_length;
  options.seed = run.numerics.seed;
  options.vocab_size = run.model.vocab_size;
  options.requested = requested;
  options.tokenizer = tokenizer;
  options.num_threads = usable_cores();
  options.say = say;
  if (say) options.progress = tokenising_progress(say);
  options.interrupt = [stop_signal] {
    if (const int signal = stop_signal == nullptr ? 0 : stop_signal->load(); signal != 0) throw Interrupted(signal);
  };
  return data::build_datasets(run.data, options);
}

RankParts::RankParts(comm::RankContext& context, const spec::RunSpec& run, Use use) : run_(run) {
  const int threads = threads_per_rank(run.parallel.threads_per_rank, context.ranks_on_this_machine());
  exec_ = std::make_unique<kernels::Executor>(tensor::Allocator::create(Device::cpu), threads,
                                              worker_spin(threads, context.ranks_on_this_machine()));
  mesh_ = mesh::create_mesh(context, run.parallel);
  rank_ = std::unique_ptr<mesh::Rank>(new mesh::Rank{context, *exec_, mesh_});
  std::vector<int> everyone(static_cast<std::size_t>(context.world_size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  world_ = context.create_group("all", everyone);
  using spec::ShardingStrategy;
  const ShardingStrategy strategy =
      mesh_.dp.trivial() || use == Use::inference ? ShardingStrategy::no_shard : run.parallel.sharding();
  model_ = model::build_model(*rank_, run, {}, strategy == ShardingStrategy::optim_grads_params);
  count_parameters();
  if (use == Use::inference) return;
  make_optimizer(strategy);
  pipeline::EngineOptions options;
  options.seed = run.numerics.seed;
  options.check_for_nan = run.log.check_for_nan;
  options.check_gradients = run.numerics.params_dtype != DType::float16;
  options.hidden_dtype = run.numerics.residual_dtype();
  engine_ = std::make_unique<pipeline::Engine>(*rank_, *model_, run, options);
  engine_->set_parameter_gate(parameter_store_.get());
}

RankParts::~RankParts() = default;

void RankParts::make_optimizer(spec::ShardingStrategy strategy) {
  using spec::ShardingStrategy;
  const spec::ParallelSpec& parallel = run_.parallel;
  const bool sharded = strategy != ShardingStrategy::no_shard;
  const bool shards_grads =
      strategy == ShardingStrategy::optim_grads || strategy == ShardingStrategy::optim_grads_params;
  optim::GradBufferOptions options;
  options.bucket_size = parallel.ddp_bucket_size;
  options.sharded = sharded;
  options.overlap = parallel.overlap;
  options.reduce_in_bf16 = run_.numerics.grad_reduce_in_bf16;
  options.indivisible = [this](const nn::Parameter& parameter) {
    return !optim::is_elementwise(optim::update_rule(run_.optimizer, parameter));
  };
  options.every_micro_batch = shards_grads || parallel.reduce_every_microbatch;
  grad_buffer_ = std::make_unique<optim::GradBuffer>(*rank_, model_->parameters(), options);
  if (strategy == ShardingStrategy::optim_grads_params)
    parameter_store_ = std::make_unique<optim::ParameterShards>(*rank_, grad_buffer_->layout(), parallel.overlap);
  else if (sharded)
    parameter_store_ = std::make_unique<optim::ParameterBuffer>(*rank_, grad_buffer_->layout(), parallel.overlap);
  std::vector<optim::OwnedPart> owned = grad_buffer_->owned();
  for (optim::OwnedPart& part : owned)
    part.value =
        parameter_store_ != nullptr ? parameter_store_->owned_value(part.range) : optim::own_part(part.range).value;
  optimizer_ = std::make_unique<optim::Optimizer>(*rank_, model_->parameters(), owned, sharded, run_.optimizer);
  optimizer_->count_zeros = run_.log.log_num_zeros_in_grad;
  if (run_.parallel.pipeline_post_validation && !mesh_.pp.trivial())
    post_validation_ = std::make_unique<optim::PostValidation>(*rank_, *optimizer_);
}

optim::UpdateResult RankParts::update(const optim::UpdateInput& input) {
  optim::UpdateResult result = optimizer_->step(input);
  if (parameter_store_ != nullptr && !result.skipped) parameter_store_->values_changed();
  return result;
}

void RankParts::update_ahead(const optim::UpdateInput& input, const optim::StageOutcome& outcome) {
  post_validation_->guess(input, outcome);
  if (parameter_store_ != nullptr && post_validation_->updated()) parameter_store_->values_changed();
}

optim::UpdateResult RankParts::settle_update() {
  if (post_validation_->guess_was_wrong()) finish_gathers();  // what is gathered must not change
  return post_validation_->finish();
}

void RankParts::share_corrected_values() {
  if (post_validation_->redone() && parameter_store_ != nullptr) parameter_store_->values_changed();
}

void RankParts::set_weights(nn::Parameter& parameter, const Tensor& values_fp32) {
  finish_gathers();
  if (!nn::shares_table(parameter, model_->parameters())) {
    if (!holds_value_shards()) {
      kernels::copy(*exec_, values_fp32.flat(), parameter.value.flat());
    } else if (const optim::OwnedPart* part = grad_buffer_->owned_part(parameter)) {
      const optim::ParameterRange& range = part->range;
      kernels::copy(*exec_, values_fp32.flat().slice(0, range.begin, range.end), parameter_store_->owned_value(range));
    }
  }
  if (optimizer_ != nullptr) optimizer_->set_main_weight(parameter, values_fp32);
}

void RankParts::finish_gathers() {
  if (parameter_store_ != nullptr) parameter_store_->finish_gathers();
}

void RankParts::complete_values() {
  if (parameter_store_ != nullptr) parameter_store_->complete();
}

bool RankParts::holds_value_shards() const { return parameter_store_ != nullptr && parameter_store_->keeps_shards(); }

std::vector<optim::OwnedPart> RankParts::held_values() {
  const std::vector<nn::Parameter*>& parameters = model_->parameters();
  std::vector<optim::OwnedPart> held;
  const auto add = [&](const optim::ParameterRange& range) {
    if (!nn::shares_table(*range.parameter, parameters)) held.push_back({range, {}, {}});
  };
  if (holds_value_shards()) {
    for (const optim::OwnedPart& part : grad_buffer_->owned()) add(part.range);
    for (optim::OwnedPart& part : held) part.value = parameter_store_->owned_value(part.range);
    return held;
  }
  finish_gathers();
  for (nn::Parameter* parameter : parameters) add({parameter, 0, parameter->value.numel()});
  for (optim::OwnedPart& part : held) part.value = part.range.parameter->value.flat();
  return held;
}

double RankParts::take_exposed_seconds() {
  return grad_buffer_->exposed_seconds() +
         (parameter_store_ == nullptr ? 0.0 : parameter_store_->take_exposed_seconds());
}

void RankParts::count_parameters() {
  stage_parameters_ = sum_over(*exec_, mesh_.tp, owned_elements(model_->parameters()), "parameters_of_stage");
  num_parameters_ = sum_over(*exec_, mesh_.pp, stage_parameters_, "parameters_of_model");
  const std::int64_t expected = spec::count_parameters(run_.model).unpadded_vocab;
  MEGATRON_CHECK_EQ(num_parameters_, expected, "parameters of the built model and of the formula");
}

}  // namespace megatron::train
