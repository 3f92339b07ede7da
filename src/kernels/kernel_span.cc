#include "kernels/kernel_span.h"

namespace megatron::kernels {

void KernelSpan::open(Executor& exec, const char* name, std::int64_t bytes) {
  exec_ = &exec;
  before_ = exec.counters();
  bytes_ = bytes;
  trace_->open(SpanKind::kernel, name);
}

void KernelSpan::close() {
  const WorkCounters& after = exec_->counters();
  trace_->close({after.matmul_flops - before_.matmul_flops + after.attention_flops - before_.attention_flops,
                 after.bytes_moved - before_.bytes_moved + bytes_});
}

}  // namespace megatron::kernels
