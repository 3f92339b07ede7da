// Matrix products of bfloat16 with the processor's instruction for pairs of k (vdpbf16ps of AVX512_BF16), which rounds
// fma(even, even, fma(odd, odd, sum)) and takes subnormal operands and sums as zero.
#pragma once

#include "kernels/cpu/product_kernels.h"

namespace megatron::kernels::cpu {

/// Build and processor have the instruction.
bool has_pair_instruction();
/// The instruction rounds as described, on some ten thousand numbers (computed once). Needs has_pair_instruction().
bool pair_instruction_rounds_as_described();

/// For processors with the instruction only.
TileSize pair_tile_size();
const Packing& pair_packing();
/// False: the sums are finished, but not rounded. Some of them are subnormal, which needs more than the instruction.
bool run_pair_tile(const TileRun& run);

}  // namespace megatron::kernels::cpu
