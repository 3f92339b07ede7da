// A stage so simple that its gradients can be written down: a chain of layers y = w·(x + 1), feature by feature.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "spec/sharding.h"

namespace megatron::pipeline {

/// Input of token t, feature h: id[t] / (h + 1). Loss of token t: Σ_h y[t,h]·label[t].
/// Keeps its stashes itself and counts them. The weights of layer l are w[h] = ((5·l + h) mod 7 − 3) / 4.
class ToyStage : public model::Stage {
 public:
  static constexpr std::int64_t kHidden = 6;

  static float weight(std::int64_t layer, std::int64_t h) { return static_cast<float>((5 * layer + h) % 7 - 3) / 4.0F; }

  ToyStage(mesh::Rank& rank, std::int64_t num_layers, int stage)
      : rank_(rank), stage_(stage), num_stages_(rank.mesh.placement.num_stages()) {
    const std::int64_t stages = num_stages_;
    for (std::int64_t l = num_layers * stage / stages; l < num_layers * (stage + 1) / stages; ++l) {
      owner_.push_back(std::make_unique<nn::Parameter>());
      nn::Parameter& p = *owner_.back();
      p.name = "w" + std::to_string(l);
      p.sharding = spec::replicated(1, kHidden, 1, 0);
      p.value = rank.exec.zeros(Shape{kHidden}, DType::float32, MemoryKind::parameter);
      p.main_grad = rank.exec.zeros(Shape{kHidden}, DType::float32, MemoryKind::gradient);
      if (!rank.exec.is_meta())
        for (std::int64_t h = 0; h < kHidden; ++h) p.value.data<float>()[h] = weight(l, h);
      parameters_.push_back(&p);
    }
  }

  Tensor forward(nn::Pass& pass, const Tensor& input, model::StageStash&) override {
    modes.push_back(pass.mode);
    const std::int64_t tokens = pass.batch.num_tokens;
    Tensor x = rank_.exec.empty(Shape{tokens, kHidden}, DType::float32);
    std::vector<Tensor> stash;
    if (has_embedding()) {
      for (std::int64_t i = 0; i < tokens * kHidden && !x.is_meta(); ++i)
        x.data<float>()[i] = static_cast<float>(pass.batch.ids[static_cast<std::size_t>(i / kHidden)]) /
                             static_cast<float>(i % kHidden + 1);
    } else {
      x = input;
    }
    for (nn::Parameter* p : parameters_) {
      stash.push_back(x);
      Tensor y = rank_.exec.empty(x.shape(), DType::float32);
      for (std::int64_t i = 0; i < x.numel() && !x.is_meta(); ++i)
        y.data<float>()[i] = p->value.data<float>()[i % kHidden] * (x.data<float>()[i] + 1.0F);
      x = y;
    }
    if (pass.keep_stash) {
      stashes_[pass.batch.index] = std::move(stash);
      most_stashes = std::max(most_stashes, num_stashes());
    }
    if (!has_head()) {
      if (spoil_output) spoil_output(pass.batch.index, x);
      return x;
    }
    Tensor losses = rank_.exec.zeros(Shape{tokens}, DType::float32);
    for (std::int64_t t = 0; t < tokens && !x.is_meta(); ++t)
      for (std::int64_t h = 0; h < kHidden; ++h)
        losses.data<float>()[t] +=
            x.data<float>()[t * kHidden + h] * static_cast<float>(pass.batch.labels[static_cast<std::size_t>(t)]);
    if (spoil_output) spoil_output(pass.batch.index, losses);
    return losses;
  }

  Tensor backward(nn::Pass& pass, Tensor d_output, model::StageStash&&) override {
    const std::int64_t tokens = pass.batch.num_tokens;
    Tensor dy = d_output;
    if (has_head()) {
      dy = rank_.exec.empty(Shape{tokens, kHidden}, DType::float32);
      for (std::int64_t i = 0; i < tokens * kHidden && !dy.is_meta(); ++i) {
        const auto t = static_cast<std::size_t>(i / kHidden);
        dy.data<float>()[i] = pass.batch.loss_mask[t] * static_cast<float>(pass.backward_scale) *
                              static_cast<float>(pass.batch.labels[t]);
      }
    }
    const std::vector<Tensor> stash = std::move(stashes_.at(pass.batch.index));
    stashes_.erase(pass.batch.index);
    for (std::size_t l = parameters_.size(); l-- > 0;) {
      nn::Parameter& p = *parameters_[l];
      Tensor dx = rank_.exec.empty(Shape{tokens, kHidden}, DType::float32);
      Tensor grad = nn::new_gradient(rank_.exec, p);
      for (std::int64_t i = 0; i < dy.numel() && !dy.is_meta(); ++i) {
        grad.data<float>()[i % kHidden] += dy.data<float>()[i] * (stash[l].data<float>()[i] + 1.0F);
        dx.data<float>()[i] = p.value.data<float>()[i % kHidden] * dy.data<float>()[i];
      }
      pass.weight_grads.push(nn::VectorTask{&p, std::move(grad)});
      dy = dx;
    }
    if (has_embedding()) return Tensor();
    if (spoil_gradient) spoil_gradient(pass.batch.index, dy);
    return dy;
  }

  Tensor forward_logits(nn::Pass&, const Tensor&, std::int64_t, std::int64_t) override { return Tensor(); }
  const std::vector<nn::Parameter*>& parameters() override { return parameters_; }
  bool has_embedding() const { return stage_ == 0; }
  bool has_head() const { return stage_ + 1 == num_stages_; }

  std::int64_t num_stashes() const { return std::ssize(stashes_); }
  std::int64_t most_stashes = 0;
  std::vector<nn::Mode> modes;  // of the forward passes, in order
  /// Change what a stage returns for a micro-batch.
  std::function<void(std::int64_t, Tensor&)> spoil_output, spoil_gradient;

 private:
  mesh::Rank& rank_;
  int stage_, num_stages_;
  std::vector<std::unique_ptr<nn::Parameter>> owner_;
  std::vector<nn::Parameter*> parameters_;
  std::map<std::int64_t, std::vector<Tensor>> stashes_;
};

/// The toy stages of one rank.
struct ToyModel {
  ToyModel(mesh::Rank& rank, std::int64_t num_layers)
      : model(rank.mesh.placement, rank.mesh.pp.rank(), make_chunks(rank, num_layers)), stage(toy(0)) {}
  ToyStage& toy(int chunk) { return static_cast<ToyStage&>(model.chunk(chunk)); }

  model::Model model;
  ToyStage& stage;  // of chunk 0

 private:
  static std::vector<std::unique_ptr<model::Stage>> make_chunks(mesh::Rank& rank, std::int64_t num_layers) {
    std::vector<std::unique_ptr<model::Stage>> chunks;
    for (int chunk = 0; chunk < rank.mesh.placement.num_chunks; ++chunk)
      chunks.push_back(
          std::make_unique<ToyStage>(rank, num_layers, rank.mesh.placement.stage_of(rank.mesh.pp.rank(), chunk)));
    return chunks;
  }
};

}  // namespace megatron::pipeline
