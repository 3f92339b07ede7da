// Fingerprints of the index arrays as Megatron-LM holds them: raw little-endian values, C order.
#pragma once

#include <string>

#include "data/gpt_index.h"

namespace megatron::data {

struct IndexMd5 {
  std::string documents;  // int32
  std::string samples;    // [n + 1, 2] of int32, int64 where documents or the longest sequence need it
  std::string order;      // uint32, int64 from 2³² − 1 samples on
};
IndexMd5 index_md5(const GptIndex& index);

}  // namespace megatron::data
