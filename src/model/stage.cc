#include "model/stage.h"

#include "model/stage_stash.h"

namespace megatron::model {

StageStash::StageStash() = default;
StageStash::~StageStash() = default;
StageStash::StageStash(StageStash&&) noexcept = default;
StageStash& StageStash::operator=(StageStash&&) noexcept = default;

void StageStash::visit(const std::function<void(const char* name, const Tensor&)>& f) const {
  if (contents == nullptr) return;
  const auto visit_kept = [&f](const char* name, const Tensor& tensor) {
    if (tensor.defined()) f(name, tensor);  // what is recomputed is not there
  };
  for (const TransformerBlock::Stash& block : contents->blocks) block.visit(visit_kept);
  for (const Tensor& input : contents->group_inputs) f("input of recomputed layers", input);
  if (!contents->has_head) return;
  contents->final_layernorm.visit(f);
  contents->head.visit(f);
}

std::int64_t StageStash::bytes() const {
  std::int64_t sum = 0;
  visit([&sum](const char*, const Tensor& tensor) { sum += tensor.bytes(); });
  return sum;
}

}  // namespace megatron::model
