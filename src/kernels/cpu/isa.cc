#include "kernels/isa.h"

#include <atomic>

#include "base/check.h"
#include "kernels/cpu/pair_kernels.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/isa.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {
std::int64_t target_in_use() { return HWY_TARGET; }
}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatron::kernels {
namespace cpu {
HWY_EXPORT(target_in_use);
}  // namespace cpu

namespace {
// The names of this program for Highway's targets, where they differ.
std::string isa_name(std::int64_t target) {
  switch (target) {
    case HWY_SCALAR:
      return "scalar";
    case HWY_AVX2:
      return "avx2";
    case HWY_AVX3:
      return "avx512";
    default:
      return hwy::TargetName(target);
  }
}

std::vector<std::int64_t> supported_targets() {
  std::vector<std::int64_t> targets;
  const std::int64_t bits = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
  for (std::int64_t rest = bits; rest != 0; rest &= rest - 1) targets.push_back(rest & -rest);  // low bits are better
  return targets;
}

std::atomic<bool>& pair_instruction_allowed() {
  static std::atomic<bool> allowed{true};
  return allowed;
}
}  // namespace

std::vector<std::string> supported_isas() {
  hwy::SetSupportedTargetsForTest(0);
  std::vector<std::string> names;
  for (const std::int64_t target : supported_targets()) names.push_back(isa_name(target));
  return names;
}

std::string current_isa() { return isa_name(HWY_DYNAMIC_DISPATCH(cpu::target_in_use)()); }

void use_isa(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  std::int64_t chosen = 0;
  for (const std::int64_t target : supported_targets())
    if (isa_name(target) == name) chosen = target;
  MEGATRON_CHECK(chosen != 0 || name.empty(), "instruction set ", name, " is not supported here");
  hwy::GetChosenTarget().Update(chosen == 0 ? hwy::SupportedTargets() : chosen);
}

bool uses_pair_instruction() {
  return pair_instruction_allowed().load() && HWY_DYNAMIC_DISPATCH(cpu::target_in_use)() == HWY_AVX3 &&
         cpu::has_pair_instruction() && cpu::pair_instruction_rounds_as_described();
}

std::string pair_instruction_reason() {
  if (!cpu::has_pair_instruction()) return "this processor has no AVX512_BF16";
  if (!cpu::pair_instruction_rounds_as_described()) return "AVX512_BF16 of this processor rounds otherwise";
  if (current_isa() != isa_name(HWY_AVX3)) return "vector code uses " + current_isa();
  return pair_instruction_allowed().load() ? "AVX512_BF16, which rounds as expected" : "AVX512_BF16 is not allowed";
}

void allow_pair_instruction(bool allowed) { pair_instruction_allowed().store(allowed); }

}  // namespace megatron::kernels
#endif
