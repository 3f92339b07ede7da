#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "checkpoint/file_io.h"
#include "support/reference_data.h"
#include "support/temporary_folder.h"

namespace megatron::checkpoint {
namespace {

/// A file image: size field, header text, data bytes.
std::vector<std::byte> image(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> file(8 + header.size() + data_bytes);
  const std::uint64_t size = header.size();
  std::memcpy(file.data(), &size, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

std::string refusal(const std::vector<std::byte>& file) {
  try {
    parse_safetensors(file, "dir/x.safetensors");
  } catch (const IoError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("dir/x.safetensors: at offset ", 0), 0U) << what;
    return what;
  }
  return "accepted";
}

void expect_refused(const std::string& header, std::size_t data_bytes, const std::string& part) {
  EXPECT_NE(refusal(image(header, data_bytes)).find(part), std::string::npos) << header << "\n"
                                                                              << refusal(image(header, data_bytes));
}

TEST(Safetensors, ReadsAHandMadeFile) {
  const auto file = image(R"({"b":{"dtype":"I32","shape":[],"data_offsets":[8,12]},"__metadata__":{"k":"v"},)"
                          R"("a":{"shape":[2,1],"data_offsets":[0,8],"dtype":"F32"},)"
                          R"("none":{"dtype":"F64","shape":[0,7],"data_offsets":[8,8]}}  )",
                          12);
  const SafetensorsHeader header = parse_safetensors(file, "x");
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(header.tensors[0].shape_text(), "[2, 1]");
  EXPECT_EQ(header.tensors[1].name, "none");
  EXPECT_EQ(header.tensors[1].numel(), 0);
  EXPECT_EQ(header.tensors[2].numel(), 1);
  EXPECT_EQ(header.metadata.at("k"), "v");
}

TEST(Safetensors, RefusesDamagedHeaders) {
  EXPECT_NE(refusal({}).find("inside the header size"), std::string::npos);
  EXPECT_NE(refusal(std::vector<std::byte>(7)).find("inside the header size"), std::string::npos);
  EXPECT_NE(refusal(std::vector<std::byte>(8)).find("does not start with"), std::string::npos);
  auto cut = image("{}", 0);
  cut[0] = std::byte{3};
  EXPECT_NE(refusal(cut).find("inside the header of 3 bytes"), std::string::npos);
  cut[7] = std::byte{0xFF};
  EXPECT_NE(refusal(cut).find("is above 100000000"), std::string::npos);
  expect_refused("[]", 0, "does not start with '{'");
  expect_refused("{\"a\":", 0, "not valid JSON");
  expect_refused("{} x", 0, "not valid JSON");
  expect_refused("{\"\xff\":{}}", 0, "not valid JSON");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
      "key \"a\" occurs twice");
  expect_refused(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1, "occurs twice");
  expect_refused(R"({"a":{"dtype":"U8","shape":[[[[1]]]],"data_offsets":[0,1]}})", 1, "nested too deeply");
  expect_refused(R"({"a":3})", 0, "tensor \"a\": its description is not an object");
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "is not a string");
  expect_refused(R"({"__metadata__":[]})", 0, "is not an object");
}

TEST(Safetensors, RefusesDamagedTensorDescriptions) {
  expect_refused(R"({"a":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype \"F3\"");
  expect_refused(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype 7");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "is missing");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "unknown key \"x\"");
  expect_refused(R"({"a":{"dtype":"F32","shape":3,"data_offsets":[0,4]}})", 4, "shape is not a list");
  expect_refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "not a count");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "not a count");
  expect_refused(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "not a count");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
                 "shape is too large");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "data_offsets is not a pair");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "run backwards");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                 "span 4 bytes, dtype and shape need 8");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "truncated?");
}

TEST(Safetensors, RefusesRangesThatDoNotTile) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const auto with = [&](const std::string& b) {
    return "{" + a + ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + b + "}}";
  };
  expect_refused(with("[2,6]"), 6, "tensor \"b\" overlaps");
  expect_refused(with("[5,9]"), 9, "belong to no tensor");
  expect_refused(with("[4,8]"), 9, "1 bytes at the end belong to no tensor");
  EXPECT_EQ(refusal(image(with("[4,8]"), 8)), "accepted");
}

TEST(Safetensors, RefusesAGitLfsPointer) {
  const std::string text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
  const auto bytes = as_bytes(text);
  EXPECT_NE(refusal({bytes.begin(), bytes.end()}).find("Git LFS pointer"), std::string::npos);
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const auto file = image(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  EXPECT_EQ(refusal(file), "accepted");
  for (std::size_t n = 0; n < file.size(); ++n)
    EXPECT_NE(refusal({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n)}), "accepted") << n;
}

TEST(Safetensors, NoChangeOfBytesEscapesAsAnythingButAnIoError) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})";
  const auto good = image(header, 16);
  std::uint32_t random = 1;
  const auto next = [&](std::uint32_t below) { return (random = random * 1664525U + 1013904223U) / 65536U % below; };
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    auto bad = good;
    for (std::uint32_t changes = 1 + next(3); changes > 0; --changes)
      bad[next(static_cast<std::uint32_t>(bad.size()))] = static_cast<std::byte>(next(256));
    if (next(4) == 0) bad.resize(next(static_cast<std::uint32_t>(bad.size())));
    try {
      for (const TensorInfo& info : parse_safetensors(bad, "x").tensors) {
        ASSERT_GE(info.begin, 8);
        ASSERT_LE(info.end, static_cast<std::int64_t>(bad.size()));
        ASSERT_EQ(info.numel() * file_dtype_size(info.dtype), info.bytes());
      }
      ++accepted;  // a change in a name or in the data
    } catch (const IoError&) {
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 15000);
}

TEST(Safetensors, WritesWhatItReads) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "t.safetensors";
  const std::vector<float> a{1.5F, -2.0F, std::numeric_limits<float>::infinity(), 0x1p-149F, 5.0F, 6.0F};
  const std::vector<std::int64_t> b{-7, 1LL << 62};
  {
    SafetensorsWriter writer(
        path, {{"z", DType::float32, {2, 3}}, {"a \"quoted\"", DType::int64, {2}}, {"e", DType::float32, {0}}},
        {{"format", "pt"}});
    const auto bytes = std::as_bytes(std::span(a));
    writer.append(bytes.subspan(0, 5));
    EXPECT_THROW(writer.finish(), Error);
    writer.append(bytes.subspan(5));
    writer.append(std::as_bytes(std::span(b)));
    EXPECT_THROW(writer.append(std::as_bytes(std::span(b))), Error);
    writer.finish();
  }
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.info("z").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.info("z").begin % 64, 0);
  EXPECT_EQ(file.read_float("z"), a);
  EXPECT_EQ(file.read_double("z")[3], 0x1p-149);
  EXPECT_EQ(file.read_int64("a \"quoted\""), b);
  EXPECT_TRUE(file.read_float("e").empty());
  EXPECT_THROW(file.read_int64("z"), IoError);
  EXPECT_THROW(file.info("q"), IoError);
  EXPECT_THROW(layout_safetensors(std::vector<TensorToWrite>{{"a", DType::uint8, {1}}, {"a", DType::uint8, {1}}}, {}),
               Error);
}

TEST(Safetensors, ConvertsEveryDtype) {
  const auto one = [](FileDType dtype, auto stored) {
    double value = 0;
    convert_elements(dtype, reinterpret_cast<const std::byte*>(&stored), 1, &value);
    return value;
  };
  EXPECT_EQ(one(FileDType::boolean, std::uint8_t{1}), 1.0);
  EXPECT_EQ(one(FileDType::i8, std::int8_t{-3}), -3.0);
  EXPECT_EQ(one(FileDType::u16, std::uint16_t{65535}), 65535.0);
  EXPECT_EQ(one(FileDType::i16, std::int16_t{-2}), -2.0);
  EXPECT_EQ(one(FileDType::u32, std::uint32_t{4000000000U}), 4e9);
  EXPECT_EQ(one(FileDType::i32, std::int32_t{-5}), -5.0);
  EXPECT_EQ(one(FileDType::u64, std::uint64_t{1} << 63), 0x1p63);
  EXPECT_EQ(one(FileDType::f64, -0.1), -0.1);
  // IEEE binary16: 1.0, the largest, the smallest subnormal, -0, infinity.
  EXPECT_EQ(one(FileDType::f16, std::uint16_t{0x3C00}), 1.0);
  EXPECT_EQ(one(FileDType::f16, std::uint16_t{0x7BFF}), 65504.0);
  EXPECT_EQ(one(FileDType::f16, std::uint16_t{0x0001}), 0x1p-24);
  EXPECT_TRUE(std::signbit(one(FileDType::f16, std::uint16_t{0x8000})));
  EXPECT_EQ(one(FileDType::f16, std::uint16_t{0xFC00}), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(one(FileDType::f16, std::uint16_t{0x7E00})));
  EXPECT_EQ(one(FileDType::bf16, std::uint16_t{0xC049}), -3.140625);
}

TEST(Safetensors, ReadsFilesOfTheReferenceImplementation) {
  const auto path = testing::reference_dir() / "golden/hf/gpt2/case.safetensors";
  MEGATRON_REQUIRE_REFERENCE(path);
  const SafetensorsFile file(path.string());
  EXPECT_EQ(file.info("logits").shape, (std::vector<std::int64_t>{2, 32, 256}));
  // The value stands in the case.json beside it.
  EXPECT_FLOAT_EQ(file.read_float("loss").at(0), 5.75612211227417F);
  const auto tokens = file.read_int64("tokens");
  ASSERT_EQ(tokens.size(), 66U);
  for (const std::int64_t token : tokens) EXPECT_TRUE(token >= 0 && token < 256);
}

}  // namespace
}  // namespace megatron::checkpoint
