// Records of the data reference: where they are, and how an array is compared with one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "reference_md5.h"
#include "support/reference_data.h"

namespace megatron::testing {

using Json = nlohmann::json;
using Ints = std::vector<std::int64_t>;

inline std::filesystem::path dataset_dir() { return reference_dir() / "golden" / "mcore" / "dataset"; }

inline Json load_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

template <typename T>
std::string md5_as(const Ints& values) {
  std::vector<T> narrow(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) narrow[i] = static_cast<T>(values[i]);
  return md5(std::as_bytes(std::span<const T>(narrow)));
}

inline std::string md5_of(const Ints& values, const std::string& dtype) {
  if (dtype == "int64") return md5_as<std::int64_t>(values);
  if (dtype == "int32") return md5_as<std::int32_t>(values);
  if (dtype == "uint32") return md5_as<std::uint32_t>(values);
  if (dtype == "int16") return md5_as<std::int16_t>(values);
  if (dtype == "int8") return md5_as<std::int8_t>(values);
  ADD_FAILURE() << "type " << dtype;
  return "";
}

/// Compares with an array record {dtype, shape, md5, values | first20, last20}; a two-dimensional one is flattened.
inline void expect_array(const Ints& actual, const Json& record, const std::string& what) {
  std::size_t size = 1;
  for (const auto& dim : record.at("shape")) size *= dim.get<std::size_t>();
  ASSERT_EQ(actual.size(), size) << what;
  const auto flat = [](const Json& list) {
    Ints values;
    for (const auto& item : list)
      if (item.is_array())
        for (const auto& inner : item) values.push_back(inner.get<std::int64_t>());
      else
        values.push_back(item.get<std::int64_t>());
    return values;
  };
  if (record.contains("values")) {
    EXPECT_EQ(actual, flat(record["values"])) << what;
  }
  if (record.contains("first20")) {
    const Ints head = flat(record["first20"]);
    EXPECT_EQ(Ints(actual.begin(), actual.begin() + static_cast<std::ptrdiff_t>(head.size())), head) << what;
  }
  EXPECT_EQ(md5_of(actual, record.at("dtype").get<std::string>()), record.at("md5").get<std::string>()) << what;
}

/// Rows of a causal mask that also hides what lies before the sequence of each row: '1' = masked.
inline std::vector<std::string> mask_rows(const data::Sample& sample) {
  const std::size_t length = sample.tokens.size();
  std::vector<std::string> rows(length, std::string(length, '1'));
  for (std::size_t s = 0; s + 1 < sample.sequence_starts.size(); ++s)
    for (auto q = static_cast<std::size_t>(sample.sequence_starts[s]);
         q < static_cast<std::size_t>(sample.sequence_starts[s + 1]); ++q)
      for (auto k = static_cast<std::size_t>(sample.sequence_starts[s]); k <= q; ++k) rows[q][k] = '0';
  return rows;
}

inline void expect_sample(const data::Sample& sample, const Json& record, const std::string& what) {
  EXPECT_EQ(sample.tokens, record.at("tokens").get<Ints>()) << what;
  EXPECT_EQ(sample.labels, record.at("labels").get<Ints>()) << what;
  EXPECT_EQ(sample.loss_mask, record.at("loss_mask").get<std::vector<float>>()) << what;
  EXPECT_EQ(sample.position_ids, record.at("position_ids").get<Ints>()) << what;
  if (record.contains("attention_mask_rows")) {
    EXPECT_EQ(mask_rows(sample), record["attention_mask_rows"].get<std::vector<std::string>>()) << what;
  }
  if (record.contains("cu_seqlens")) {
    Ints starts = sample.sequence_starts;
    starts.resize(sample.tokens.size() + 1, static_cast<std::int64_t>(sample.tokens.size()));
    EXPECT_EQ(starts, record["cu_seqlens"].get<Ints>()) << what;
  }
}

}  // namespace megatron::testing
