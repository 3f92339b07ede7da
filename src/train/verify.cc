#include "train/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "train/reference_run.h"

namespace megatron::train {
namespace {

using interop::HuggingFaceModel;
using interop::ReferenceBatch;
using interop::ReferenceCase;
using interop::ReferenceTolerances;

/// The maximum that keeps NaN.
double larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }

double largest_error(const std::vector<float>& ours, const std::vector<float>& theirs) {
  double error = 0;
  for (std::size_t i = 0; i < ours.size(); ++i)
    error = larger(error, std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i])));
  return error;
}

double largest_magnitude(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = larger(largest, std::abs(static_cast<double>(value)));
  return largest;
}

double relative_error(double ours, double theirs) {
  const double error = std::abs(ours - theirs);
  return theirs != 0.0 ? error / std::abs(theirs) : error;
}

class Verifier {
 public:
  Verifier(ReferenceRun& run, const spec::RunSpec& spec, const HuggingFaceModel& model, const ReferenceCase& reference)
      : run_(run), spec_(spec), model_(model), reference_(reference), tolerances_(reference.tolerances()) {}

  VerifyReport verify() {
    // Before the gradients, because it wants the initial weights; before training for the same reason.
    const std::vector<Comparison> tokens = greedy_tokens();
    compare_logits();
    compare_gradients();
    compare_training();
    report_.comparisons.insert(report_.comparisons.end(), tokens.begin(), tokens.end());
    if (tokens.empty()) report_.not_compared.push_back("generate.0.tokens");
    return std::move(report_);
  }

 private:
  void add(const std::string& quantity, double error, double tolerance) {
    report_.comparisons.push_back({quantity, error, tolerance, error <= tolerance});
  }

  /// True if the file holds the key; else it is noted.
  bool wanted(const std::string& key, bool have_input = true) {
    if (have_input && reference_.has(key)) return true;
    report_.not_compared.push_back(key);
    return false;
  }

  std::int64_t rows() const { return reference_.batch().samples * reference_.batch().seq_length; }

  std::vector<Comparison> greedy_tokens() {
    std::vector<Comparison> results;
    for (const interop::GreedyCase& greedy : reference_.greedy()) {
      const auto ours = run_.greedy(greedy.prompt, std::ssize(greedy.tokens));
      double differing = 0;
      for (std::size_t i = 0; i < ours.size(); ++i) differing += ours[i] != greedy.tokens[i] ? 1 : 0;
      results.push_back({greedy.name + ".tokens", differing, 0.0, differing == 0});
    }
    return results;
  }

  void compare_logits() {
    if (!wanted("logits", reference_.batch().samples > 0)) return;
    const auto theirs = reference_.values("logits", rows() * spec_.model.vocab_size);
    add("logits", largest_error(run_.logits(reference_.batch()), theirs), tolerances_.logits_abs);
  }

  void compare_gradients() {
    const bool have_input = reference_.batch().samples > 0;
    ReferenceRun::Observed observed;
    ReferenceRun::StepResult result;
    if (have_input) result = run_.forward_backward(reference_.batch(), &observed);
    for (std::int64_t i = 0; i <= spec_.model.num_layers; ++i) {
      const std::string key = str_cat("hidden.", i);
      if (wanted(key, have_input))
        add(key,
            largest_error(observed.hidden[static_cast<std::size_t>(i)],
                          reference_.values(key, rows() * spec_.model.hidden_size)),
            tolerances_.hidden_abs);
    }
    if (wanted("token_losses", have_input))
      add("token_losses", largest_error(observed.token_losses, reference_.values("token_losses", rows())),
          tolerances_.token_losses_abs);
    if (wanted("loss", have_input))
      add("loss", std::abs(result.loss - static_cast<double>(reference_.values("loss", 1)[0])), tolerances_.loss_abs);
    each_foreign_tensor("grad.", have_input, ReferenceRun::What::gradient, [&](interop::ForeignTensor& ours) {
      for (float& value : ours.values) value = static_cast<float>(static_cast<double>(value) / result.token_sum);
      compare_gradient("grad." + ours.name, ours.values);
    });
    if (wanted("grad_norm", have_input))
      add("grad_norm", relative_error(result.grad_norm, static_cast<double>(reference_.values("grad_norm", 1)[0])),
          tolerances_.grad_norm_rel);
  }

  void compare_gradient(const std::string& key, const std::vector<float>& ours) {
    const auto theirs = reference_.values(key, std::ssize(ours));
    const double scale = largest_magnitude(theirs);
    const double error = largest_error(ours, theirs);
    if (tolerances_.zero_gradients.count(key) != 0)
      add(key, error, 0.0);
    else
      add(key, scale > 0 ? error / scale : error, tolerances_.grad_rel_to_tensor_max);
  }

  /// Calls compare for each tensor of the other program's naming that the file holds under PREFIX + name. Tensors are
  /// put together one at a time, and only those that are wanted.
  template <typename Compare>
  void each_foreign_tensor(const std::string& prefix, bool have_input, ReferenceRun::What what, Compare&& compare) {
    for (const std::string& name : model_.names()) {
      std::vector<std::string> held;
      for (const std::string& foreign : model_.foreign_names(name))
        if (wanted(prefix + foreign, have_input)) held.push_back(foreign);
      if (held.empty()) continue;
      const std::vector<float> ours = run_.logical(name, model_.num_elements(name), what);
      for (interop::ForeignTensor& tensor : model_.to_foreign(name, ours))
        if (std::find(held.begin(), held.end(), tensor.name) != held.end()) compare(tensor);
    }
  }

  void compare_training() {
    const auto& batches = reference_.train_batches();
    const auto steps = std::ssize(batches);
    const bool have_loss = wanted("train.loss", steps > 0), have_norm = wanted("train.grad_norm", steps > 0);
    std::vector<float> losses, norms;
    if (have_loss) losses = reference_.values("train.loss", steps);
    if (have_norm) norms = reference_.values("train.grad_norm", steps);
    double loss_error = 0, norm_error = 0;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const ReferenceRun::StepResult result = run_.train_step(batches[i], reference_.training());
      if (have_loss) loss_error = larger(loss_error, std::abs(result.loss - static_cast<double>(losses[i])));
      if (have_norm) norm_error = larger(norm_error, relative_error(result.grad_norm, static_cast<double>(norms[i])));
    }
    if (have_loss) add("train.loss", loss_error, tolerances_.train_loss_abs);
    if (have_norm) add("train.grad_norm", norm_error, tolerances_.train_grad_norm_rel);
    each_foreign_tensor("final.", steps > 0, ReferenceRun::What::value, [&](const interop::ForeignTensor& ours) {
      compare_final(ours.name, ours.values, static_cast<double>(steps));
    });
  }

  /// The root mean square decides; a single element that is too far off is reported instead. Elements that only
  /// rounding moves may differ by what Adam can move them in all steps: lr each.
  void compare_final(const std::string& name, const std::vector<float>& ours, double steps) {
    const std::string key = "final." + name;
    const auto theirs = reference_.values(key, std::ssize(ours));
    std::vector<bool> unstable(ours.size(), false);
    for (const std::int64_t index : reference_.unstable(name, std::ssize(ours)))
      unstable[static_cast<std::size_t>(index)] = true;
    double squares = 0, largest = 0, largest_unstable = 0, count = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double error = std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]));
      if (unstable[i]) {
        largest_unstable = larger(largest_unstable, error);
        continue;
      }
      squares += error * error;
      largest = larger(largest, error);
      count += 1;
    }
    const double rms = count > 0 ? std::sqrt(squares / count) : 0.0;
    const double bound = steps * reference_.training().lr;
    if (!(largest <= tolerances_.final_abs) && rms <= tolerances_.final_rms)
      add(key, largest, tolerances_.final_abs);
    else if (!(largest_unstable <= bound))
      add(key, largest_unstable, bound);
    else
      add(key, rms, tolerances_.final_rms);
  }

  ReferenceRun& run_;
  const spec::RunSpec& spec_;
  const HuggingFaceModel& model_;
  const ReferenceCase& reference_;
  const ReferenceTolerances& tolerances_;
  VerifyReport report_;
};

/// Throws ConfigError unless whole micro-batches of `batch` can be given to all data-parallel ranks.
void check_batch(const spec::RunSpec& run, const ReferenceBatch& batch, const char* key, const std::string& path) {
  const std::int64_t dp = run.parallel.data_parallel, micro = run.batch.micro_batch_size;
  if (batch.samples % (dp * micro) != 0)
    throw ConfigError(str_cat("--world-size ", run.parallel.world_size, ": data parallel size ", dp,
                              " times --micro-batch-size ", micro, " does not divide the ", batch.samples,
                              " samples of \"", key, "\" in ", path));
  if (batch.seq_length > run.model.max_position_embeddings)
    throw ConfigError(str_cat("\"", key, "\" in ", path, ": sequences of ", batch.seq_length, " tokens, the model has ",
                              run.model.max_position_embeddings, " positions"));
  const std::int64_t cut = run.parallel.sequence_parallel ? run.parallel.tensor_parallel : 1;
  if (batch.seq_length % cut != 0)
    throw ConfigError(str_cat("--sequence-parallel: --tensor-model-parallel-size ", cut, " does not divide the length ",
                              batch.seq_length, " of \"", key, "\" in ", path));
}

}  // namespace

bool VerifyReport::passed() const {
  return !comparisons.empty() &&
         std::all_of(comparisons.begin(), comparisons.end(), [](const Comparison& c) { return c.ok; });
}

void describe_verification(spec::RunSpec& run, const spec::ModelSpec& model, const ReferenceCase& reference) {
  const std::int64_t divisor = run.model.make_vocab_size_divisible_by;
  run.model = model;
  run.model.make_vocab_size_divisible_by = divisor;
  run.model.hidden_dropout = 0.0;
  run.model.attention_dropout = 0.0;
  if (reference.batch().samples > 0)
    run.model.seq_length = reference.batch().seq_length;
  else if (!reference.train_batches().empty())
    run.model.seq_length = reference.train_batches()[0].seq_length;
  const interop::ReferenceTraining& training = reference.training();
  run.optimizer = spec::OptimizerSpec{};
  run.optimizer.lr = training.lr;
  run.optimizer.min_lr = training.lr;
  run.optimizer.lr_decay_style = spec::DecayStyle::constant;
  run.optimizer.adam_beta1 = training.beta1;
  run.optimizer.adam_beta2 = training.beta2;
  run.optimizer.adam_eps = training.eps;
  run.optimizer.weight_decay = training.weight_decay;
  run.optimizer.clip_grad = training.clip_grad;
  if (run.batch.micro_batch_size <= 0) run.batch.micro_batch_size = 1;
}

void check_verification(const spec::RunSpec& run, const ReferenceCase& reference) {
  reference.check_tokens(run.model.vocab_size);
  if (reference.batch().samples > 0) check_batch(run, reference.batch(), "tokens", reference.path());
  if (!reference.train_batches().empty())
    check_batch(run, reference.train_batches()[0], "train_tokens", reference.path());
  const std::int64_t multiple = run.parallel.sequence_parallel ? run.parallel.tensor_parallel : 1;
  for (const interop::GreedyCase& greedy : reference.greedy()) {
    const std::int64_t length = std::ssize(greedy.prompt) + std::ssize(greedy.tokens) - 1;
    if ((length + multiple - 1) / multiple * multiple > run.model.max_position_embeddings)
      throw ConfigError(str_cat(greedy.name, " in ", reference.path(), ": prompt and tokens make ", length + 1,
                                " tokens, the model has ", run.model.max_position_embeddings, " positions"));
  }
}

VerifyReport verify(comm::World& world, const spec::RunSpec& run, const HuggingFaceModel& model,
                    const ReferenceCase& reference) {
  VerifyReport report;
  std::mutex mutex;
  bool kept = false;
  world.run([&](comm::RankContext& context) {
    ReferenceRun rank_run(context, run, model);
    VerifyReport mine = Verifier(rank_run, run, model, reference).verify();
    const std::lock_guard<std::mutex> lock(mutex);
    if (!std::exchange(kept, true)) report = std::move(mine);
  });
  return report;
}

}  // namespace megatron::train
