#include "interop/reference_case.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/check.h"
#include "checkpoint/file_io.h"

namespace megatron::interop {
namespace {

using Json = nlohmann::json;

/// A number of `object`, or the default where the key is absent.
void take_number(const Json& object, const char* key, double& field, const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  if (!found->is_number() || !std::isfinite(found->get<double>()) || found->get<double>() < 0)
    throw IoError(str_cat(path, ": \"", key, "\" is ", found->dump(), ", not a number ≥ 0"));
  field = found->get<double>();
}

const Json* sub_object(const Json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  if (found == json.end()) return nullptr;
  if (!found->is_object()) throw IoError(str_cat(path, ": \"", key, "\" is not an object"));
  return &*found;
}

void require_text(const Json& object, const char* key, const char* expected, const std::string& path) {
  const auto found = object.find(key);
  if (found != object.end() && *found != Json(expected))
    throw ConfigError(
        str_cat(path, ": training ", key, " = ", found->dump(), " is not supported (only \"", expected, "\")"));
}

/// Rows of s + 1 tokens into inputs and the tokens that follow.
ReferenceBatch split_rows(const std::int64_t* tokens, std::int64_t samples, std::int64_t seq_length) {
  ReferenceBatch batch{samples, seq_length, {}, {}, {}};
  for (std::int64_t b = 0; b < samples; ++b, tokens += seq_length + 1) {
    batch.ids.insert(batch.ids.end(), tokens, tokens + seq_length);
    batch.labels.insert(batch.labels.end(), tokens + 1, tokens + seq_length + 1);
  }
  batch.loss_mask.assign(batch.ids.size(), 1.0F);
  return batch;
}

}  // namespace

ReferenceCase::ReferenceCase(const std::string& path) : file_(path) {
  const std::string settings = (std::filesystem::path(path).parent_path() / "case.json").string();
  std::error_code ignored;
  if (std::filesystem::exists(settings, ignored)) read_settings(settings);
  read_batch();
  read_train_batches();
  read_greedy();
}

void ReferenceCase::fail(const std::string& key, const std::string& reason) const {
  throw IoError(str_cat(path(), ": tensor \"", key, "\" ", reason));
}

void ReferenceCase::read_settings(const std::string& path) {
  const Json json = Json::parse(checkpoint::read_text_file(path), nullptr, false);
  if (!json.is_object()) throw IoError(str_cat(path, ": is not a JSON object"));
  settings_path_ = path;
  ReferenceTolerances& t = tolerances_;
  if (const Json* const object = sub_object(json, "tolerance", path)) {
    const std::pair<const char*, double*> fields[] = {{"logits_abs", &t.logits_abs},
                                                      {"hidden_abs", &t.hidden_abs},
                                                      {"token_losses_abs", &t.token_losses_abs},
                                                      {"loss_abs", &t.loss_abs},
                                                      {"grad_rel_to_tensor_max", &t.grad_rel_to_tensor_max},
                                                      {"grad_norm_rel", &t.grad_norm_rel},
                                                      {"train_loss_abs", &t.train_loss_abs},
                                                      {"train_grad_norm_rel", &t.train_grad_norm_rel},
                                                      {"final_rms", &t.final_rms},
                                                      {"final_abs", &t.final_abs}};
    for (const auto& [key, field] : fields) take_number(*object, key, *field, path);
  }
  if (const Json* const noise = sub_object(json, "noise_fp32_vs_fp64", path))
    if (const auto zeros = noise->find("zero_gradient_tensors"); zeros != noise->end() && zeros->is_array())
      for (const Json& name : *zeros)
        if (name.is_string()) t.zero_gradients.insert(name.get<std::string>());
  if (const Json* const training = sub_object(json, "training", path)) {
    require_text(*training, "optimizer", "AdamW", path);
    require_text(*training, "lr_schedule", "constant", path);
    const std::pair<const char*, double*> fields[] = {{"lr", &training_.lr},
                                                      {"beta1", &training_.beta1},
                                                      {"beta2", &training_.beta2},
                                                      {"eps", &training_.eps},
                                                      {"weight_decay", &training_.weight_decay},
                                                      {"clip_grad", &training_.clip_grad}};
    for (const auto& [key, field] : fields) take_number(*training, key, *field, path);
  }
}

void ReferenceCase::read_batch() {
  const char* const key = has("tokens") ? "tokens" : "input_ids";
  if (!has(key)) return;
  const std::vector<std::int64_t>& shape = file_.info(key).shape;
  const bool joined = has("tokens");
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < (joined ? 2 : 1))
    fail(key,
         str_cat("has shape ", file_.info(key).shape_text(), ", not [samples, ", joined ? "length + 1]" : "length]"));
  const std::vector<std::int64_t> ids = file_.read_int64(key);
  if (joined) {
    batch_ = split_rows(ids.data(), shape[0], shape[1] - 1);
  } else {
    batch_ = {shape[0], shape[1], ids, file_.read_int64("labels"), {}};
    batch_.loss_mask.assign(ids.size(), 1.0F);
    if (batch_.labels.size() != ids.size()) fail("labels", "has another size than input_ids");
  }
  if (has("loss_mask")) batch_.loss_mask = values("loss_mask", batch_.samples * batch_.seq_length);
}

void ReferenceCase::read_train_batches() {
  if (!has("train_tokens")) return;
  const std::vector<std::int64_t> shape = file_.info("train_tokens").shape;
  if (shape.size() != 3 || shape[0] < 1 || shape[1] < 1 || shape[2] < 2)
    fail("train_tokens",
         str_cat("has shape ", file_.info("train_tokens").shape_text(), ", not [steps, samples, length + 1]"));
  const std::vector<std::int64_t> tokens = file_.read_int64("train_tokens");
  for (std::int64_t step = 0; step < shape[0]; ++step)
    train_batches_.push_back(split_rows(tokens.data() + step * shape[1] * shape[2], shape[1], shape[2] - 1));
}

void ReferenceCase::read_greedy() {
  for (int i = 0;; ++i) {
    const std::string name = str_cat("generate.", i);
    if (!has(name + ".prompt") || !has(name + ".tokens")) return;
    greedy_.push_back({name, file_.read_int64(name + ".prompt"), file_.read_int64(name + ".tokens")});
    if (greedy_.back().prompt.empty()) fail(name + ".prompt", "is empty");
  }
}

std::vector<float> ReferenceCase::values(const std::string& key, std::int64_t count) const {
  if (file_.info(key).numel() != count)
    fail(key, str_cat("has shape ", file_.info(key).shape_text(), ", ", count, " elements are needed"));
  return file_.read_float(key);
}

std::vector<std::int64_t> ReferenceCase::unstable(const std::string& name, std::int64_t count) const {
  const std::string key = "final_unstable." + name;
  if (!has(key)) return {};
  std::vector<std::int64_t> indices = file_.read_int64(key);
  for (const std::int64_t index : indices)
    if (index < 0 || index >= count) fail(key, str_cat("holds index ", index, " of ", count, " elements"));
  return indices;
}

void ReferenceCase::check_tokens(std::int64_t vocab_size) const {
  const auto check = [&](const std::string& key, const std::vector<std::int64_t>& tokens) {
    for (const std::int64_t token : tokens)
      if (token < 0 || token >= vocab_size)
        fail(key, str_cat("holds token ", token, ", the vocabulary has ", vocab_size));
  };
  check("tokens", batch_.ids);
  check("tokens", batch_.labels);
  for (const ReferenceBatch& batch : train_batches_) {
    check("train_tokens", batch.ids);
    check("train_tokens", batch.labels);
  }
  for (const GreedyCase& greedy : greedy_) {
    check(greedy.name + ".prompt", greedy.prompt);
    check(greedy.name + ".tokens", greedy.tokens);
  }
}

}  // namespace megatron::interop
