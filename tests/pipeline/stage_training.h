// Trains a small Transformer for a few steps with engine, gradient buffer and optimizer, under any layout.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "model/build.h"
#include "optim/grad_buffer.h"
#include "optim/optimizer.h"
#include "pipeline/engine.h"
#include "schedule/passes.h"
#include "schedule/training_program.h"
#include "support/run_ranks.h"
#include "support/stage_fixture.h"

namespace megatron::pipeline {

struct TrainingCase {
  spec::ModelSpec model;
  spec::ParallelSpec parallel = testing::make_parallel(1);
  spec::OptimizerSpec optimizer;
  std::int64_t global_batch = 4;
  std::int64_t micro_batch = 1;
  std::int64_t steps = 3;
  double lr = 1e-2;
  DType dtype = DType::float32;
  std::uint64_t perturb_seed = 0;
  /// Weight gradients in instructions of their own (I, W).
  bool split_backward = false;
  std::function<std::vector<float>(std::int64_t sample, std::int64_t length)> mask;  // null: make_batch's
};

struct TrainingResult {
  std::vector<double> losses, grad_norms;  // per step
  testing::WholeTensors weights;
  std::vector<double> table, head;  // the tied table's two copies, of tensor-parallel rank 0
};

inline spec::ModelSpec tiny_model(bool llama, bool tied) {
  spec::ModelSpec model;
  model.num_layers = 4;
  model.hidden_size = 16;
  model.num_attention_heads = 4;
  model.seq_length = 8;
  model.vocab_size = 37;
  model.untie_embeddings_and_output_weights = !tied;
  model.init_method_std = 0.2;  // gradients large enough that every part matters
  if (llama) {
    model.normalization = spec::Normalization::rms_norm;
    model.position_embedding = spec::PositionEmbedding::rope;
    model.activation = spec::Activation::silu;
    model.gated_linear_unit = true;
    model.add_bias_linear = false;
    model.num_query_groups = 2;
    model.ffn_hidden_size = 24;
  }
  return model;
}

inline schedule::Program program_of(const TrainingCase& c, std::int64_t m) {
  schedule::Program program = schedule::training_program(c.parallel, m);
  if (!c.split_backward) return program;
  for (std::size_t rank = 0; rank < program.lists.size(); ++rank) {
    auto& list = program.lists[rank];
    std::vector<schedule::Instruction> split;
    for (const schedule::Instruction& i : list) {
      split.push_back(i);
      if (i.op == schedule::Op::backward) split.back().op = schedule::Op::backward_input;
    }
    // All weight gradients at the end, in order.
    for (std::int64_t i = 0; i < m; ++i) split.push_back({schedule::Op::backward_weight, i, static_cast<int>(rank)});
    list = split;
  }
  schedule::validate(program);
  return program;
}

/// The micro-batches of one rank: global sample s goes to micro-batch s ÷ (micro · dp), rank s ÷ micro mod dp.
inline std::vector<nn::MicroBatch> batches_of(const TrainingCase& c, const spec::RunSpec& run, const mesh::Rank& rank,
                                              std::int64_t step) {
  std::vector<nn::MicroBatch> batches;
  const std::int64_t dp = rank.mesh.dp.size(), round = c.micro_batch * dp;
  for (std::int64_t i = 0; i < c.global_batch / round; ++i) {
    const std::int64_t first = step * c.global_batch + i * round + rank.mesh.dp.rank() * c.micro_batch;
    nn::MicroBatch batch = testing::make_batch(99, first, c.micro_batch, run.model.seq_length, run.model.vocab_size);
    if (c.mask) {
      batch.loss_mask.clear();
      for (std::int64_t s = first; s < first + c.micro_batch; ++s)
        for (const float weight : c.mask(s, run.model.seq_length)) batch.loss_mask.push_back(weight);
    }
    batch.index = i;
    testing::place_batch(batch, rank, c.parallel.sequence_parallel);
    batches.push_back(std::move(batch));
  }
  return batches;
}

/// Sums of all ranks of a data-parallel group and the loss of the last stage, on every rank.
inline void share_sums(mesh::Rank& rank, StepOutput& output) {
  for (ExactSum* sum : {&output.loss_sum, &output.mask_sum}) {
    ExactSum mine;
    if (rank.mesh.holds_last_stage() && rank.mesh.tp.rank() == 0) mine.add(*sum);
    Tensor words = rank.exec.empty(Shape{ExactSum::kWords}, DType::int64, MemoryKind::communication);
    std::copy(mine.words().begin(), mine.words().end(), words.data<std::int64_t>());
    words = rank.mesh.world.all_reduce(words, "sums of the step");
    std::copy_n(words.data<std::int64_t>(), ExactSum::kWords, sum->words().begin());
  }
}

inline TrainingResult train(const TrainingCase& c) {
  TrainingResult result;
  testing::Gatherer gatherer;
  std::mutex mutex;
  const spec::RunSpec run = testing::make_run(c.model, c.parallel, 8);
  const auto on_rank = [&](mesh::Rank& rank) {
    const auto model = model::build_model(rank, run, c.dtype);
    model::initialize_parameters(rank, model->parameters(), 1234);
    optim::GradBuffer buffer(rank, model->parameters(), {.bucket_size = 300});
    optim::Optimizer optimizer(rank, model->parameters(), c.optimizer);
    EngineOptions options;
    options.hidden_dtype = c.dtype;
    Engine engine(rank, *model, run, options);
    const std::int64_t m = c.global_batch / (c.micro_batch * rank.mesh.dp.size());
    const auto list = program_of(c, m).lists[static_cast<std::size_t>(rank.mesh.pp.rank())];
    for (std::int64_t step = 0; step < c.steps; ++step) {
      const auto batches = batches_of(c, run, rank, step);
      buffer.start_step(m);
      StepOutput output = engine.run_step(list, batches, &buffer, step);
      buffer.finish_step();
      share_sums(rank, output);
      const optim::UpdateResult update = optimizer.step({c.lr, 0.1, output.mask_sum.value(), 1.0});
      if (rank.mesh.rank != 0) continue;
      result.losses.push_back(output.loss_sum.value() / output.mask_sum.value());
      result.grad_norms.push_back(update.grad_norm);
    }
    if (rank.mesh.dp.rank() == 0) {
      for (const nn::Parameter* p : model->parameters())
        if (!p->tied_use) gatherer.add_values(*p);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (rank.mesh.dp.rank() != 0 || rank.mesh.tp.rank() != 0) return;
    for (const nn::Parameter* p : model->parameters()) {
      if (p->shared_embedding) result.table = testing::to_doubles(p->value);
      if (p->tied_use) result.head = testing::to_doubles(p->value);
    }
  };
  testing::run_mesh(c.parallel, on_rank, 1, c.perturb_seed);
  result.weights = gatherer.tensors;
  return result;
}

}  // namespace megatron::pipeline
