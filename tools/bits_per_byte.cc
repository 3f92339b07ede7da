// Prints the validation loss of a run in bits per byte beside that of an order-3 byte model on the same text:
//   bits_per_byte --text FILE --data PREFIX --log LOG.jsonl --held-out 0.05
// The text is one document per line, as `megatron preprocess` reads it, and PREFIX.bin/.idx are what it made of it with
// --append-eod; the end-of-document token stands for the newline, so the tokens of the held-out documents stand for
// exactly the bytes of the held-out lines. Exit status 1 if the trained model is worse than the order-3 model.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/check.h"
#include "base/mapped_file.h"
#include "data/indexed_dataset.h"
#include "data/witten_bell.h"

namespace {

// Offset of line `keep`: the split cuts the list of lines, not the bytes.
std::size_t offset_of_line(std::span<const std::byte> text, std::int64_t keep) {
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == std::byte{'\n'} && ++seen == keep) return i + 1;
  return text.size();
}

struct HeldOut {
  std::int64_t first_document = 0;
  std::int64_t tokens = 0;
};

// The last documents of the data set, cut as --split cuts it.
HeldOut held_out_documents(const megatron::data::IndexedDataset& data, double share) {
  const auto documents = static_cast<double>(data.num_documents());
  HeldOut held{static_cast<std::int64_t>(std::nearbyint((1.0 - share) * documents)), 0};
  for (std::int64_t i = data.document_start(held.first_document); i < data.num_sequences(); ++i)
    held.tokens += data.length(i);
  return held;
}

double last_validation_loss(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw megatron::IoError(path + ": cannot open");
  double loss = NAN;
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("validation_loss")) loss = record["validation_loss"].get<double>();
  }
  if (std::isnan(loss)) throw megatron::IoError(path + ": holds no validation loss");
  return loss;
}

int run(int argc, char** argv) {
  std::string text_path, data_prefix, log_path;
  double held_out = 0.05;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--text")
      text_path = argv[i + 1];
    else if (name == "--data")
      data_prefix = argv[i + 1];
    else if (name == "--log")
      log_path = argv[i + 1];
    else if (name == "--held-out")
      held_out = std::stod(argv[i + 1]);
    else
      throw megatron::ConfigError("unknown option " + name + "; known: --text --data --log --held-out");
  }
  const megatron::MappedFile text(text_path);
  const HeldOut held = held_out_documents(megatron::data::IndexedDataset(data_prefix), held_out);
  const std::size_t cut = offset_of_line(text.bytes(), held.first_document);
  const double markov = megatron::data::witten_bell_bits_per_byte(text.bytes().first(cut), text.bytes().subspan(cut));
  const double tokens_per_byte = static_cast<double>(held.tokens) / static_cast<double>(text.bytes().size() - cut);
  const double bits = last_validation_loss(log_path) * tokens_per_byte / std::log(2.0);
  std::printf("validation: %.3f bits per byte (order-3: %.3f)\n", bits, markov);
  return bits > markov ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bits_per_byte: %s\n", error.what());
    return 2;
  }
}
