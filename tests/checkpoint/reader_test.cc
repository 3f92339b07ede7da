#include "checkpoint/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/file_io.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/writer.h"
#include "sharded_state.h"
#include "support/temporary_folder.h"

namespace megatron::checkpoint {
namespace {

namespace fs = std::filesystem;

void save(const TestLayout& layout, const std::string& directory, std::int64_t iteration = 10) {
  run_layout(layout, [&](comm::Communicator& world, std::vector<StateEntry>& entries) {
    fill(entries);
    write_checkpoint(world, directory, iteration, entries, "{}\n", 60000);
  });
}

/// The message of the IoError that f throws.
template <typename F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

/// One rank's entry for a whole tensor.
StateEntry whole(const std::string& name, int dims, std::int64_t rows, std::int64_t cols,
                 DType dtype = DType::float32) {
  static const auto allocator = tensor::Allocator::create(Device::cpu);
  StateEntry entry{name, spec::replicated(dims, rows, cols, 0), true, {}};
  entry.tensor = Tensor::zeros(*allocator, dims == 1 ? Shape{rows} : Shape{rows, cols}, dtype, MemoryKind::parameter);
  return entry;
}

class Reader : public ::testing::Test {
 protected:
  std::string iteration() const { return folder_ / "c/iter_0000010"; }
  std::string open() {
    return refusal([&] { CheckpointReader(folder_ / "c", 10); });
  }
  /// Replaces a file's text and makes the manifest agree with its new length.
  void rewrite(const std::string& name, const std::string& text) {
    put(iteration() + "/" + name, text);
    const std::string path = iteration() + "/manifest.json";
    auto json = nlohmann::json::parse(read_text_file(path));
    json["files"][name]["bytes"] = text.size();
    put(path, json.dump());
  }
  const testing::TemporaryFolder folder_;
};

TEST_F(Reader, ReadsAtAnyLayout) {
  save({2, 2, 1}, folder_ / "c");
  for (const TestLayout layout :
       {TestLayout{1, 1, 1}, {1, 3, 1}, {3, 1, 1}, {4, 1, 1}, {2, 1, 2}, {6, 1, 1}, {2, 2, 2}})
    run_layout(layout, [&](comm::Communicator& world, std::vector<StateEntry>& entries) {
      const CheckpointReader reader(folder_ / "c", 10);
      EXPECT_EQ(reader.iteration(), 10);
      EXPECT_EQ(reader.state_json(), "{}\n");
      reader.verify_checksums(world.rank(), world.size());
      std::int64_t compared = 0;
      for (StateEntry& entry : entries) {
        reader.read(entry);
        each_element(entry, [&](float& element, float value) {
          ASSERT_EQ(element, value) << entry.name;
          ++compared;
        });
        // The test's tensors start as sevens: padding rows must have become zero.
        const float* const data = entry.tensor.data<float>();
        EXPECT_EQ(std::count(data, data + entry.tensor.numel(), 7.0F), 0) << entry.name;
      }
      EXPECT_GT(compared, 0);
    });
}

TEST_F(Reader, CutsAPaddedVocabularyAndNoOtherRows) {
  save({1, 1, 1}, folder_ / "c");
  const CheckpointReader reader(folder_ / "c", 10);
  StateEntry table = whole("embedding.word_embeddings.weight", 2, 30, kHidden);
  reader.read(table);
  each_element(table, [](float& element, float value) { ASSERT_EQ(element, value); });
  StateEntry moment = whole("optimizer.exp_avg.embedding.word_embeddings.weight", 2, 30, kHidden);
  reader.read(moment);
  each_element(moment, [](float& element, float value) { ASSERT_EQ(element, value); });
  expect_contains(refusal([&] { reader.read(whole("embedding.word_embeddings.weight", 2, 38, kHidden)); }),
                  {"has shape [37, 24], the model needs [38, 24]", ".safetensors"});
  expect_contains(refusal([&] { reader.read(whole("decoder.layers.3.mlp.linear_fc1.weight", 2, 20, kHidden)); }),
                  {"decoder.layers.3.mlp.linear_fc1.weight", "has shape [24, 24], the model needs [20, 24]"});
}

TEST_F(Reader, NamesMissingTensorsAndWrongShapes) {
  save({1, 1, 1}, folder_ / "c");
  const CheckpointReader reader(folder_ / "c", 10);
  EXPECT_TRUE(reader.has("decoder.layers.0.mlp.linear_fc1.weight"));
  EXPECT_FALSE(reader.has("decoder.layers.0.mlp.linear_fc1.bias"));
  EXPECT_EQ(reader.shape("decoder.layers.0.mlp.linear_fc1.weight"), (std::vector<std::int64_t>{24, 24}));
  expect_contains(refusal([&] { reader.read(whole("decoder.layers.0.mlp.linear_fc1.bias", 1, 24, 1)); }),
                  {iteration(), "has no tensor \"decoder.layers.0.mlp.linear_fc1.bias\""});
  expect_contains(refusal([&] { reader.read(whole("decoder.layers.0.input_layernorm.weight", 2, 24, 1)); }),
                  {"has shape [24], the model needs [24, 1]"});
  expect_contains(refusal([&] { reader.read(whole("decoder.layers.0.mlp.linear_fc1.weight", 2, 24, 12)); }),
                  {"has shape [24, 24], the model needs [24, 12]"});
  expect_contains(
      refusal([&] { reader.read(whole("decoder.layers.0.input_layernorm.weight", 1, 24, 1, DType::int64)); }),
      {"is F32, the model needs int64"});
  expect_contains(refusal([&] { CheckpointReader(folder_ / "c", 11); }), {"iter_0000011", "no such checkpoint"});
}

TEST_F(Reader, WidensToDouble) {
  save({1, 1, 1}, folder_ / "c");
  StateEntry entry = whole("decoder.layers.2.mlp.linear_fc1.weight", 2, 24, 24, DType::float64);
  CheckpointReader(folder_ / "c", 10).read(entry);
  for (std::int64_t i = 0; i < 576; ++i)
    ASSERT_EQ(entry.tensor.data<double>()[i], static_cast<double>(value_at(entry.name, i / 24, i % 24)));
}

TEST_F(Reader, OpensAFolderThatHoldsTheManifestAndFindsFusedNorms) {
  const auto allocator = tensor::Allocator::create(Device::cpu);
  run_layout({1, 1, 1}, [&](comm::Communicator& world, std::vector<StateEntry>&) {
    std::vector<StateEntry> fused;
    for (const char* name : {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
                             "optimizer.exp_avg.decoder.layers.0.mlp.linear_fc1.layer_norm_bias"})
      fused.push_back(whole(name, 1, 5, 1));
    fill(fused);
    write_checkpoint(world, folder_ / "c", 10, fused, "{}");
  });
  const CheckpointReader reader(iteration(), 0);
  EXPECT_EQ(reader.path(), iteration());
  EXPECT_TRUE(reader.has("decoder.layers.0.input_layernorm.weight"));
  StateEntry norm = whole("decoder.layers.0.input_layernorm.weight", 1, 5, 1);
  reader.read(norm);
  EXPECT_EQ(norm.tensor.data<float>()[4],
            value_at("decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", 4, 0));
  StateEntry moment = whole("optimizer.exp_avg.decoder.layers.0.pre_mlp_layernorm.bias", 1, 5, 1);
  reader.read(moment);
  EXPECT_EQ(moment.tensor.data<float>()[2],
            value_at("optimizer.exp_avg.decoder.layers.0.mlp.linear_fc1.layer_norm_bias", 2, 0));
}

TEST_F(Reader, TrackerFile) {
  EXPECT_EQ(latest_iteration(folder_ / "c"), std::nullopt);
  save({1, 1, 1}, folder_ / "c");
  EXPECT_EQ(latest_iteration(folder_ / "c"), 10);
  const std::string tracker = folder_ / "c/latest_checkpointed_iteration.txt";
  put(tracker, "25\n");
  EXPECT_EQ(latest_iteration(folder_ / "c"), 25);
  for (const char* text : {"", "release", "-3", "1 2", "99999999999999999999", "\n"}) {
    put(tracker, text);
    expect_contains(refusal([&] { latest_iteration(folder_ / "c"); }), {tracker, "not an iteration number"});
  }
}

TEST_F(Reader, RefusesDamagedManifests) {
  save({1, 1, 1}, folder_ / "c");
  const std::string path = iteration() + "/manifest.json";
  const std::string good = read_text_file(path);
  for (std::size_t n = 0; n + 2 < good.size(); n += 97) {  // the end of the file is a brace and a newline
    put(path, good.substr(0, n));
    expect_contains(open(), {path, "not valid JSON"});
  }
  const auto with = [&](const std::function<void(nlohmann::json&)>& change) {
    auto json = nlohmann::json::parse(good);
    change(json);
    put(path, json.dump());
    return open();
  };
  expect_contains(with([](auto& json) { json["version"] = 2; }), {path, "format version 2"});
  expect_contains(with([](auto& json) { json["format"] = "x"; }), {"not a checkpoint manifest"});
  expect_contains(with([](auto& json) { json.erase("files"); }), {"has no \"files\""});
  expect_contains(with([](auto& json) { json["iteration"] = "10"; }), {"\"iteration\" of the manifest is not a count"});
  expect_contains(with([](auto& json) { json["files"]["model-00001.safetensors"]["bytes"] = -1; }), {"is not a count"});
  expect_contains(with([](auto& json) { json["files"]["../x"] = json["files"]["state.json"]; }),
                  {"is not a file name"});
  expect_contains(with([](auto& json) { json["files"].erase("state.json"); }), {"does not list state.json"});
  expect_contains(with([](auto& json) { json["files"].erase("model-00001.safetensors"); }), {"which is not listed"});
  expect_contains(with([](auto& json) { json["tensors"]["extra"] = json["tensors"].begin().value(); }),
                  {"has no tensor \"extra\" though manifest.json says so"});
  expect_contains(with([](auto& json) { json = nlohmann::json::array(); }), {"the manifest is not an object"});
  fs::remove(path);
  expect_contains(open(), {path, "cannot open"});
}

TEST_F(Reader, RefusesMissingCutAndForeignFiles) {
  save({1, 1, 1}, folder_ / "c");
  const std::string name = "model-00001.safetensors";
  const std::string path = iteration() + "/" + name;
  const std::string good = read_text_file(path);
  put(path, good.substr(0, good.size() - 1));
  expect_contains(open(), {path, "bytes long, manifest.json says"});
  rewrite(name, good.substr(0, good.size() - 4));
  expect_contains(open(), {path, "truncated?"});
  rewrite(name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n");
  expect_contains(open(), {path, "Git LFS pointer"});
  fs::remove(path);
  expect_contains(open(), {path, "named by manifest.json but cannot be opened"});
  rewrite(name, good);
  EXPECT_EQ(open(), "accepted");
  fs::remove(iteration() + "/state.json");
  expect_contains(open(), {"state.json"});
}

TEST_F(Reader, ChecksumsFindOneFlippedBitAnywhere) {
  save({1, 1, 1}, folder_ / "c");
  const auto check = [&] { return refusal([&] { CheckpointReader(folder_ / "c", 10).verify_checksums(); }); };
  EXPECT_EQ(check(), "accepted");
  const std::string path = iteration() + "/optimizer-00001.safetensors";
  const std::string good = read_text_file(path);
  const SafetensorsFile file(path);
  const TensorInfo victim = file.tensors()[1];
  for (const std::int64_t at : {victim.begin, victim.end - 1}) {
    std::string bad = good;
    bad[static_cast<std::size_t>(at)] = static_cast<char>(bad[static_cast<std::size_t>(at)] ^ 16);
    put(path, bad);
    expect_contains(check(), {path, "tensor \"" + victim.name + "\": checksum", "the file is damaged"});
  }
  std::string swapped = good;  // a header that is still valid: other metadata
  swapped.replace(swapped.find("\"pt\""), 4, "\"tp\"");
  put(path, swapped);
  expect_contains(check(), {path, "checksum", "the file is damaged"});
  put(path, good);
  put(iteration() + "/state.json", "[]\n");
  expect_contains(check(), {"state.json: checksum"});
}

}  // namespace
}  // namespace megatron::checkpoint
