// megatron generate: continues a prompt with the model of a checkpoint, under any layout.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "cli/command.h"
#include "cli/run_parsing.h"
#include "config/parse.h"
#include "config/text_value.h"
#include "infer/generate.h"
#include "train/assemble.h"
#include "train/state_io.h"

namespace megatron::cli {
namespace {

struct Request {
  std::string directory, prompt;
  infer::GenerateOptions options;
};

std::string own_text(const config::ParsedRun& parsed, const char* name, const char* otherwise) {
  const auto found = parsed.own.find(name);
  return found == parsed.own.end() ? otherwise : found->second;
}

std::int64_t own_integer(const config::ParsedRun& parsed, const char* name, const char* otherwise) {
  const std::string text = own_text(parsed, name, otherwise);
  const std::string problem = config::integer_problem(text, 0);
  if (!problem.empty()) throw ConfigError(str_cat(name, " ", text, ": ", problem));
  return *config::parse_integer(text);
}

double own_real(const config::ParsedRun& parsed, const char* name, const char* otherwise) {
  const std::string text = own_text(parsed, name, otherwise);
  const auto value = config::parse_real(text);
  if (!value.has_value()) throw ConfigError(str_cat(name, " ", text, ": must be a number"));
  return *value;
}

std::string read_prompt(const config::ParsedRun& parsed) {
  const bool text = parsed.own.count("--prompt") > 0, file = parsed.own.count("--prompt-file") > 0;
  if (text == file) throw ConfigError("give a prompt: either --prompt TEXT or --prompt-file FILE");
  if (text) return parsed.own.at("--prompt");
  const std::string& path = parsed.own.at("--prompt-file");
  std::ifstream in(path, std::ios::binary);
  // A folder opens like a file; only reading tells them apart.
  if (!in || std::filesystem::is_directory(path))
    throw ConfigError(str_cat("--prompt-file ", path, ": cannot be read as a file"));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Request make_request(const config::ParsedRun& parsed) {
  Request request;
  refuse_described_options(parsed, {"--load", "--ckpt-step", "--tokenizer-model", "--vocab-file", "--merge-file"},
                           "model, tokenizer and training come from the checkpoint of --load");
  if (!parsed.spec.checkpoint.load.has_value()) throw ConfigError("--load is missing: the folder of a checkpoint");
  request.directory = *parsed.spec.checkpoint.load;
  request.prompt = read_prompt(parsed);
  request.options.num_tokens = own_integer(parsed, "--num-tokens", "64");
  request.options.sampling.temperature = own_real(parsed, "--temperature", "1");
  request.options.sampling.top_k = own_integer(parsed, "--top-k", "0");
  request.options.sampling.top_p = own_real(parsed, "--top-p", "0");
  request.options.sampling.seed = parsed.spec.numerics.seed;
  return request;
}

/// The checkpoint's model under the layout of the command line.
spec::RunSpec make_run(const config::ParsedRun& parsed, const train::StoredRun& stored) {
  spec::RunSpec run = parsed.spec;
  run.model = stored.run.model;
  run.model.hidden_dropout = run.model.attention_dropout = 0.0;
  run.parallel.sequence_parallel = false;
  const std::vector<std::string> problems = config::complete_run(run, launcher_size());
  std::string lines;
  for (const std::string& problem : problems) lines += (lines.empty() ? "" : "\n") + problem;
  if (!lines.empty()) throw ConfigError(lines);
  if (run.parallel.data_parallel != 1)
    throw ConfigError(str_cat("--world-size ", run.parallel.world_size,
                              ": generation runs one replica, tensor × pipeline = ",
                              run.parallel.tensor_parallel * run.parallel.pipeline_parallel, " ranks"));
  return run;
}

/// The tokenizer that the model was trained with, from where its files are now.
std::unique_ptr<tokenizer::Tokenizer> make_tokenizer(const spec::DataSpec& data, const std::string& identity) {
  tokenizer::TokenizerOptions moved;
  moved.vocab_file = data.vocab_file;
  moved.merge_file = data.merge_file;
  moved.tokenizer_model = data.tokenizer_model;
  try {
    return tokenizer::tokenizer_from_identity(identity, moved);
  } catch (const IoError& error) {
    throw IoError(str_cat(error.what(), "; the option says where the tokenizer's file is now"));
  }
}

/// Prints the text of tokens as it becomes certain: whole characters only, in the end exactly what decoding all gives.
class TextStream {
 public:
  TextStream(const tokenizer::Tokenizer& tokenizer, const std::vector<std::int64_t>& prompt) : decoder_(tokenizer) {
    std::string text;
    for (const std::int64_t id : prompt) text += decoder_.push(id);
    print(text);
  }
  void add(std::int64_t id) { print(decoder_.push(id)); }
  void finish() { print(decoder_.finish()); }

 private:
  static void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  tokenizer::StreamDecoder decoder_;
};

int generate(const config::ParsedRun& parsed) {
  Request request = make_request(parsed);
  print_notices(parsed);
  if (parsed.spec.parallel.sequence_parallel && is_first_process())
    std::fputs("notice: --sequence-parallel has no effect: tokens are made one by one\n", stderr);
  const train::StoredRun stored = train::read_stored_run(request.directory, parsed.spec.checkpoint.ckpt_step);
  if (stored.tokenizer_json == "{}") throw ConfigError(request.directory + ": was trained without a tokenizer");
  const auto tokenizer = make_tokenizer(parsed.spec.data, stored.tokenizer_json);
  const spec::RunSpec run = make_run(parsed, stored);
  request.options.eod = tokenizer->eod();
  const std::vector<std::int64_t> prompt = tokenizer->encode(request.prompt);
  infer::check_prompt_length(static_cast<std::int64_t>(prompt.size()), run);
  infer::check_sampling(request.options.sampling, run.model.vocab_size);

  const std::unique_ptr<comm::World> world = train::create_world(run);
  std::unique_ptr<TextStream> stream;
  std::int64_t made = 0;
  try {
    world->run([&](comm::RankContext& context) {
      train::RankParts parts(context, run, train::RankParts::Use::inference);
      train::load_weights(parts, request.directory, stored.iteration);
      if (parts.is_main()) stream = std::make_unique<TextStream>(*tokenizer, prompt);
      const auto ids = infer::generate(parts.rank(), parts.model(), run, prompt, request.options, [&](std::int64_t id) {
        if (parts.is_main() && id != request.options.eod) stream->add(id);
      });
      if (parts.is_main()) made = static_cast<std::int64_t>(ids.size());
    });
  } catch (const Error& error) {
    if (!world->failure_reported()) throw;
    return exit_status(error);  // the line of the failed rank has been printed
  }
  if (!world->is_main_process()) return 0;
  stream->finish();
  std::fputc('\n', stdout);
  std::fflush(stdout);
  const auto total = static_cast<std::int64_t>(prompt.size()) + made;
  if (made < request.options.num_tokens && total >= run.model.max_position_embeddings)
    std::fprintf(stderr, "stopped after %lld tokens: the model has %lld positions\n", static_cast<long long>(made),
                 static_cast<long long>(run.model.max_position_embeddings));
  return 0;
}

}  // namespace

std::vector<config::CommandOption> generate_options() {
  return {{"--prompt", true, "Text to continue."},
          {"--prompt-file", true, "File whose bytes are the prompt, to the last one."},
          {"--num-tokens", true, "New tokens at most (default 64); the end-of-document token ends earlier, unprinted."},
          {"--temperature", true, "Divides the logits (default 1); 0: always the most likely token."},
          {"--top-k", true, "Sample among the k most likely tokens (default 0: all); 1: the most likely."},
          {"--top-p", true, "Sample among the most likely tokens that together exceed p (default 0: all)."}};
}

int run_generate(Arguments args) {
  try {
    const config::ParsedRun parsed =
        config::parse_run(args, {config::ParseMode::layout, generate_options(), launcher_size()});
    config::require_accepted(parsed);
    return generate(parsed);
  } catch (const Error& error) {
    return tell_once(error);
  }
}

}  // namespace megatron::cli
