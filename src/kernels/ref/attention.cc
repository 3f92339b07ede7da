#include "kernels/ref/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_mask.h"
#include "kernels/dropout_mask.h"

namespace megatron::kernels::ref {

namespace {
// One sequence and one query head.
struct Problem {
  const AttentionParams& params;
  std::int64_t first_query, queries, first_key, keys;
  std::int64_t head, key_head;
  std::int64_t sample, first_position;
};

template <typename View>
auto* row_of(const View& view, std::int64_t token, std::int64_t head) {
  return view.template data<double>() + token * view.stride(0) + head * view.stride(1);
}

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += (a[i]) * (b[i]);
  return sum;
}

double capped(const AttentionParams& params, double score) {
  return params.soft_cap > 0 ? params.soft_cap * std::tanh(score / params.soft_cap) : score;
}

// What a probability is multiplied with: 1, or 0 or 1/(1 − p) with dropout.
double keep_factor(const Problem& problem, std::int64_t query, std::int64_t key) {
  const AttentionParams& params = problem.params;
  if (params.dropout == 0) return 1;
  const auto counter = attention_dropout_counter(problem.sample, params.first_head + problem.head,
                                                 problem.first_position + query, key / 4);
  const bool keeps = dropout_keeps(philox4x32(params.dropout_key, counter), key, dropout_threshold(params.dropout));
  return keeps ? 1 / (1 - params.dropout) : 0;
}

template <typename Body>
void for_each_problem(const AttentionParams& params, const SequenceRanges& sequences, std::int64_t heads,
                      std::int64_t key_heads, const Body& body) {
  const auto key_starts = sequences.key_starts.empty() ? sequences.starts : sequences.key_starts;
  for (std::size_t s = 0; s + 1 < sequences.starts.size(); ++s)
    for (std::int64_t head = 0; head < heads; ++head)
      body(Problem{params, sequences.starts[s], sequences.starts[s + 1] - sequences.starts[s], key_starts[s],
                   key_starts[s + 1] - key_starts[s], head, head / (heads / key_heads),
                   params.dropout > 0 ? sequences.sample[s] : 0, params.dropout > 0 ? sequences.first_position[s] : 0});
}

void forward_row(const Problem& problem, std::int64_t i, const ConstTensorView& q, const ConstTensorView& k,
                 const ConstTensorView& v, const TensorView& o, const TensorView& lse, std::vector<double>& scores) {
  const KeyRange range = visible_keys(problem.params, i, problem.keys);
  const std::int64_t token = problem.first_query + i;
  const double* query = row_of(q, token, problem.head);
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  scores.assign(static_cast<std::size_t>(problem.keys), 0.0);
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const double* key = row_of(k, problem.first_key + j, problem.key_head);
    const double score = capped(problem.params, problem.params.scale * dot(query, key, q.size(2)));
    scores[static_cast<std::size_t>(j)] = score;
    top = std::max(top, score);
  }
  std::vector<double> out(static_cast<std::size_t>(v.size(2)));
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const double weight = std::exp(scores[static_cast<std::size_t>(j)] - top);
    sum += weight;
    const double kept = weight * keep_factor(problem, i, j);
    const double* value = row_of(v, problem.first_key + j, problem.key_head);
    for (std::int64_t e = 0; e < v.size(2); ++e) out[static_cast<std::size_t>(e)] += kept * (value[e]);
  }
  double* to = row_of(o, token, problem.head);
  for (std::int64_t e = 0; e < v.size(2); ++e) to[e] = (sum > 0 ? out[static_cast<std::size_t>(e)] / sum : 0);
  *(lse.data<double>() + token * lse.stride(0) + problem.head) = (top + std::log(sum));
}

void clear(const TensorView& view) {
  for (std::int64_t t = 0; t < view.size(0); ++t)
    for (std::int64_t h = 0; h < view.size(1); ++h) std::fill_n(row_of(view, t, h), view.size(2), 0.0);
}

struct Gradients {
  std::vector<double> dq, dk, dv;  // of one problem
};

void backward_row(const Problem& problem, std::int64_t i, const ConstTensorView& q, const ConstTensorView& k,
                  const ConstTensorView& v, const ConstTensorView& o, const ConstTensorView& lse,
                  const ConstTensorView& d_o, Gradients& grads) {
  const AttentionParams& params = problem.params;
  const std::int64_t token = problem.first_query + i, size = q.size(2), value_size = v.size(2);
  const KeyRange range = visible_keys(params, i, problem.keys);
  const double* query = row_of(q, token, problem.head);
  const double* grad = row_of(d_o, token, problem.head);
  const double delta = dot(grad, row_of(o, token, problem.head), value_size);
  const auto log_sum = (*(lse.data<double>() + token * lse.stride(0) + problem.head));
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    const double* key = row_of(k, problem.first_key + j, problem.key_head);
    const double* value = row_of(v, problem.first_key + j, problem.key_head);
    const double score = capped(params, params.scale * dot(query, key, size));
    const double p = std::exp(score - log_sum);
    const double kept = keep_factor(problem, i, j);
    double* dv = grads.dv.data() + j * value_size;
    for (std::int64_t e = 0; e < value_size; ++e) dv[e] += p * kept * (grad[e]);
    double ds = p * (kept * dot(grad, value, value_size) - delta);
    if (params.soft_cap > 0) ds *= 1 - (score / params.soft_cap) * (score / params.soft_cap);
    ds *= params.scale;
    double* dq = grads.dq.data() + i * size;
    double* dk = grads.dk.data() + j * size;
    for (std::int64_t d = 0; d < size; ++d) {
      dq[d] += ds * (key[d]);
      dk[d] += ds * (query[d]);
    }
  }
}

void add_rows(const std::vector<double>& from, std::int64_t first, std::int64_t head, const TensorView& to) {
  const std::int64_t size = to.size(2), rows = static_cast<std::int64_t>(from.size()) / std::max<std::int64_t>(size, 1);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t d = 0; d < size; ++d)
      row_of(to, first + r, head)[d] += (from[static_cast<std::size_t>(r * size + d)]);
}
}  // namespace

void attention_forward(Executor&, const AttentionParams& params, const SequenceRanges& sequences, ConstTensorView q,
                       ConstTensorView k, ConstTensorView v, TensorView o, TensorView lse) {
  std::vector<double> scores;
  for_each_problem(params, sequences, q.size(1), k.size(1), [&](const Problem& problem) {
    for (std::int64_t i = 0; i < problem.queries; ++i) forward_row(problem, i, q, k, v, o, lse, scores);
  });
}

void attention_backward(Executor&, const AttentionParams& params, const SequenceRanges& sequences, ConstTensorView q,
                        ConstTensorView k, ConstTensorView v, ConstTensorView o, ConstTensorView lse,
                        ConstTensorView d_o, TensorView dq, TensorView dk, TensorView dv) {
  clear(dq);
  clear(dk);
  clear(dv);
  for_each_problem(params, sequences, q.size(1), k.size(1), [&](const Problem& problem) {
    Gradients grads;
    grads.dq.assign(static_cast<std::size_t>(problem.queries * q.size(2)), 0.0);
    grads.dk.assign(static_cast<std::size_t>(problem.keys * k.size(2)), 0.0);
    grads.dv.assign(static_cast<std::size_t>(problem.keys * v.size(2)), 0.0);
    for (std::int64_t i = 0; i < problem.queries; ++i) backward_row(problem, i, q, k, v, o, lse, d_o, grads);
    add_rows(grads.dq, problem.first_query, problem.head, dq);
    add_rows(grads.dk, problem.first_key, problem.key_head, dk);
    add_rows(grads.dv, problem.first_key, problem.key_head, dv);
  });
}

}  // namespace megatron::kernels::ref
