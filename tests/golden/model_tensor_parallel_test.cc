// Models cut over two tensor-parallel ranks against Megatron Core cut the same way: its ranks' shards are joined, our
// ranks run the joined model at TP 2, and everything must agree. Tolerances as in model_test.cc.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/golden_model.h"
#include "support/reference_data.h"
#include "support/run_ranks.h"

namespace megatron {
namespace {

using checkpoint::SafetensorsFile;
using testing::WholeTensors;

constexpr double kValueTolerance = 2e-6;
constexpr double kGradientTolerance = 1e-5;

using Values = std::vector<double>;
using Cut = std::vector<nlohmann::json>;  // [partition dim, stride, tensor parallel, sequence parallel]

/// One below the other.
Values join_rows(const Values& a, const Values& b) {
  Values joined = a;
  joined.insert(joined.end(), b.begin(), b.end());
  return joined;
}

/// Side by side; `columns` of each half.
Values join_columns(const Values& a, const Values& b, std::int64_t columns) {
  Values joined;
  for (std::size_t row = 0; row < a.size(); row += static_cast<std::size_t>(columns)) {
    const auto begin = static_cast<std::ptrdiff_t>(row);
    joined.insert(joined.end(), a.begin() + begin, a.begin() + begin + columns);
    joined.insert(joined.end(), b.begin() + begin, b.begin() + begin + columns);
  }
  return joined;
}

/// [gate_r; up_r] of two ranks → [gate; up].
Values join_gated(const Values& a, const Values& b) {
  const auto half = static_cast<std::ptrdiff_t>(a.size() / 2);
  Values joined(a.begin(), a.begin() + half);
  joined.insert(joined.end(), b.begin(), b.begin() + half);
  joined.insert(joined.end(), a.begin() + half, a.end());
  joined.insert(joined.end(), b.begin() + half, b.end());
  return joined;
}

Values join(const SafetensorsFile& first, const SafetensorsFile& second, const std::string& key, const Cut& cut) {
  const Values a = first.read_double(key), b = second.read_double(key);
  if (!cut.at(2).get<bool>()) return a;  // whole on every rank
  if (cut.at(1) == 2) return join_gated(a, b);
  return cut.at(0) == 1 ? join_columns(a, b, first.info(key).shape[1]) : join_rows(a, b);
}

class GoldenTensorParallel : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTensorParallel, AgreesWithMegatronCore) {
  const std::string name = GetParam();
  const auto folder = testing::reference_dir() / "golden/mcore/model_tp";
  MEGATRON_REQUIRE_REFERENCE(folder);
  const auto records = (folder / "cases.rank0.json").string();
  const testing::GoldenCase golden = testing::read_golden_cases(records, {name}).front();
  std::ifstream stream(records);
  nlohmann::json partition;
  for (const auto& record : nlohmann::json::parse(stream))
    if (record.at("name") == name) partition = record.at("ok").at("partition");
  const SafetensorsFile first((folder / (name + ".tp2.rank0.safetensors")).string());
  const SafetensorsFile second((folder / (name + ".tp2.rank1.safetensors")).string());
  WholeTensors parameters, gradients;
  for (const auto& [parameter, cut] : partition.items()) {
    parameters[parameter] = join(first, second, "param." + parameter, cut);
    gradients[parameter] = join(first, second, "grad." + parameter, cut);
  }
  const bool sequence_parallel = name.find("_sp") != std::string::npos;
  const auto output = testing::run_golden(golden, testing::make_parallel(2, 1, 1, sequence_parallel), parameters,
                                          testing::golden_batch(first), DType::float32);

  EXPECT_LE(testing::relative_max_error(output.losses, first.read_double("out.loss_per_token")), kValueTolerance);
  const Values logits = join_columns(first.read_double("out.logits"), second.read_double("out.logits"),
                                     first.info("out.logits").shape[2]);
  EXPECT_LE(testing::relative_max_error(output.logits, logits), kValueTolerance);
  const std::vector<std::int64_t>& shape = first.info("in.tokens").shape;
  for (std::size_t i = 0; i < output.hidden.size(); ++i) {
    const std::string key = i == 0 ? "act.embedding" : "act.decoder.layers." + std::to_string(i - 1);
    Values hidden = first.read_double(key);
    if (sequence_parallel) hidden = join_rows(hidden, second.read_double(key));
    EXPECT_LE(testing::relative_max_error(output.hidden[i], testing::sample_major(hidden, shape[1], shape[0])),
              kValueTolerance)
        << key;
  }
  EXPECT_EQ(output.gradients.size(), gradients.size());
  for (const auto& [parameter, gradient] : gradients)
    EXPECT_LE(testing::relative_max_error(output.gradients.at(parameter), gradient), kGradientTolerance) << parameter;
}

INSTANTIATE_TEST_SUITE_P(AllCases, GoldenTensorParallel,
                         ::testing::Values("gpt3", "gpt3_sp", "llama", "llama_sp", "llama_mqa"));

}  // namespace
}  // namespace megatron
