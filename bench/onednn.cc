// oneDNN's two matrix products. The library is opened at run time, so that nothing but the benchmark depends on it.
#include <dlfcn.h>
#include <dnnl.h>

#include <array>
#include <memory>
#include <utility>

#include "cli/library_matmul.h"

namespace megatron::cli {
namespace {

/// The functions of the library that are used here; all null where it cannot be opened.
struct OneDnn {
  decltype(&dnnl_sgemm) sgemm = nullptr;
  decltype(&dnnl_engine_create) engine_create = nullptr;
  decltype(&dnnl_stream_create) stream_create = nullptr;
  decltype(&dnnl_stream_wait) stream_wait = nullptr;
  decltype(&dnnl_memory_desc_init_by_strides) memory_desc_init = nullptr;
  decltype(&dnnl_memory_create) memory_create = nullptr;
  decltype(&dnnl_matmul_desc_init) matmul_desc_init = nullptr;
  decltype(&dnnl_primitive_attr_create) attr_create = nullptr;
  decltype(&dnnl_primitive_attr_set_post_ops) attr_set_post_ops = nullptr;
  decltype(&dnnl_post_ops_create) post_ops_create = nullptr;
  decltype(&dnnl_post_ops_append_sum) post_ops_append_sum = nullptr;
  decltype(&dnnl_primitive_desc_create) primitive_desc_create = nullptr;
  decltype(&dnnl_primitive_create) primitive_create = nullptr;
  decltype(&dnnl_primitive_execute) primitive_execute = nullptr;
  decltype(&dnnl_engine_destroy) engine_destroy = nullptr;
  decltype(&dnnl_stream_destroy) stream_destroy = nullptr;
  decltype(&dnnl_memory_destroy) memory_destroy = nullptr;
  decltype(&dnnl_primitive_attr_destroy) primitive_attr_destroy = nullptr;
  decltype(&dnnl_post_ops_destroy) post_ops_destroy = nullptr;
  decltype(&dnnl_primitive_desc_destroy) primitive_desc_destroy = nullptr;
  decltype(&dnnl_primitive_destroy) primitive_destroy = nullptr;
  void (*set_num_threads)(int) = nullptr;  // of the OpenMP runtime that came with the library

  OneDnn() {
    void* const library = ::dlopen("libdnnl.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return;
    find(library, "dnnl_sgemm", sgemm);
    find(library, "dnnl_engine_create", engine_create);
    find(library, "dnnl_stream_create", stream_create);
    find(library, "dnnl_stream_wait", stream_wait);
    find(library, "dnnl_memory_desc_init_by_strides", memory_desc_init);
    find(library, "dnnl_memory_create", memory_create);
    find(library, "dnnl_matmul_desc_init", matmul_desc_init);
    find(library, "dnnl_primitive_attr_create", attr_create);
    find(library, "dnnl_primitive_attr_set_post_ops", attr_set_post_ops);
    find(library, "dnnl_post_ops_create", post_ops_create);
    find(library, "dnnl_post_ops_append_sum", post_ops_append_sum);
    find(library, "dnnl_primitive_desc_create", primitive_desc_create);
    find(library, "dnnl_primitive_create", primitive_create);
    find(library, "dnnl_primitive_execute", primitive_execute);
    find(library, "dnnl_engine_destroy", engine_destroy);
    find(library, "dnnl_stream_destroy", stream_destroy);
    find(library, "dnnl_memory_destroy", memory_destroy);
    find(library, "dnnl_primitive_attr_destroy", primitive_attr_destroy);
    find(library, "dnnl_post_ops_destroy", post_ops_destroy);
    find(library, "dnnl_primitive_desc_destroy", primitive_desc_destroy);
    find(library, "dnnl_primitive_destroy", primitive_destroy);
    find(RTLD_DEFAULT, "omp_set_num_threads", set_num_threads);
  }
  bool complete() const {
    return sgemm != nullptr && engine_create != nullptr && stream_create != nullptr && stream_wait != nullptr &&
           memory_desc_init != nullptr && memory_create != nullptr && matmul_desc_init != nullptr &&
           attr_create != nullptr && attr_set_post_ops != nullptr && post_ops_create != nullptr &&
           post_ops_append_sum != nullptr && primitive_desc_create != nullptr && primitive_create != nullptr &&
           primitive_execute != nullptr && engine_destroy != nullptr && stream_destroy != nullptr &&
           memory_destroy != nullptr && primitive_attr_destroy != nullptr && post_ops_destroy != nullptr &&
           primitive_desc_destroy != nullptr && primitive_destroy != nullptr && set_num_threads != nullptr;
  }

 private:
  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
  }
};

void slab(const OneDnn& library, const LibraryProblem& p, std::int64_t row, std::int64_t rows, std::int64_t column,
          std::int64_t columns) {
  const float* a = static_cast<const float*>(p.a) + (p.transpose_a ? row : row * p.k);
  const float* b = static_cast<const float*>(p.b) + (p.transpose_b ? column * p.k : column);
  library.set_num_threads(1);
  library.sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', rows, columns, p.k, 1.0F, a,
                p.transpose_a ? p.m : p.k, b, p.transpose_b ? p.k : p.n, p.accumulate ? 1.0F : 0.0F,
                static_cast<float*>(p.c) + row * p.n + column, p.n);
}

void sgemm_in_slabs(const OneDnn& library, kernels::Executor& exec, const LibraryProblem& p) {
  const std::int64_t threads = exec.num_threads();
  exec.parallel_for(threads, [&](std::int64_t i, int) {
    const auto cut = [&](std::int64_t size, std::int64_t part) { return size * part / threads; };
    if (p.n >= p.m)
      slab(library, p, 0, p.m, cut(p.n, i), cut(p.n, i + 1) - cut(p.n, i));
    else
      slab(library, p, cut(p.m, i), cut(p.m, i + 1) - cut(p.m, i), 0, p.n);
  });
}

/// The matmul primitive for one problem.
class MatmulPrimitive {
 public:
  MatmulPrimitive(std::shared_ptr<const OneDnn> opened, const LibraryProblem& p) : library_(std::move(opened)) {
    const OneDnn& library = *library_;
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t description;
    made_ = ok(library.engine_create(&engine_, dnnl_cpu, 0)) &&
            ok(library.stream_create(&stream_, engine_, dnnl_stream_default_flags)) &&
            describe(a, p.m, p.k, p.operands, p.transpose_a) && describe(b, p.k, p.n, p.operands, p.transpose_b) &&
            describe(c, p.m, p.n, p.result, false) && (!p.accumulate || add_to_result()) &&
            ok(library.matmul_desc_init(&description, &a, &b, nullptr, &c)) &&
            ok(library.primitive_desc_create(&primitive_desc_, &description, attributes_, engine_, nullptr)) &&
            ok(library.primitive_create(&primitive_, primitive_desc_)) &&
            ok(library.memory_create(&operands_[0], &a, engine_, const_cast<void*>(p.a))) &&
            ok(library.memory_create(&operands_[1], &b, engine_, const_cast<void*>(p.b))) &&
            ok(library.memory_create(&operands_[2], &c, engine_, p.c));
  }
  ~MatmulPrimitive() {
    const OneDnn& library = *library_;
    for (dnnl_memory_t operand : operands_) destroy(operand, library.memory_destroy);
    destroy(primitive_, library.primitive_destroy);
    destroy(primitive_desc_, library.primitive_desc_destroy);
    destroy(attributes_, library.primitive_attr_destroy);
    destroy(operations_, library.post_ops_destroy);
    destroy(stream_, library.stream_destroy);
    destroy(engine_, library.engine_destroy);
  }
  MatmulPrimitive(const MatmulPrimitive&) = delete;
  MatmulPrimitive& operator=(const MatmulPrimitive&) = delete;
  bool made() const { return made_; }
  void run(int threads) const {
    library_->set_num_threads(threads);
    const std::array<dnnl_exec_arg_t, 3> args{
        {{DNNL_ARG_SRC, operands_[0]}, {DNNL_ARG_WEIGHTS, operands_[1]}, {DNNL_ARG_DST, operands_[2]}}};
    library_->primitive_execute(primitive_, stream_, static_cast<int>(args.size()), args.data());
    library_->stream_wait(stream_);
  }

 private:
  template <typename Object, typename Destroy>
  static void destroy(Object object, Destroy by) {
    if (object != nullptr) by(object);
  }
  static bool ok(dnnl_status_t status) { return status == dnnl_success; }
  static dnnl_data_type_t dnnl_type(DType type) {
    if (type == DType::bfloat16) return dnnl_bf16;
    return type == DType::float16 ? dnnl_f16 : dnnl_f32;
  }
  bool add_to_result() {
    return ok(library_->attr_create(&attributes_)) && ok(library_->post_ops_create(&operations_)) &&
           ok(library_->post_ops_append_sum(operations_, 1.0F)) &&
           ok(library_->attr_set_post_ops(attributes_, operations_));
  }
  bool describe(dnnl_memory_desc_t& memory, std::int64_t rows, std::int64_t columns, DType type,
                bool transposed) const {
    const dnnl_dims_t sizes = {rows, columns};
    const dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
    return ok(library_->memory_desc_init(&memory, 2, sizes, dnnl_type(type), strides));
  }

  std::shared_ptr<const OneDnn> library_;
  dnnl_engine_t engine_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
  dnnl_primitive_attr_t attributes_ = nullptr;
  dnnl_post_ops_t operations_ = nullptr;
  dnnl_primitive_desc_t primitive_desc_ = nullptr;
  dnnl_primitive_t primitive_ = nullptr;
  std::array<dnnl_memory_t, 3> operands_{};
  bool made_ = false;
};

}  // namespace

std::vector<LibraryMatmul> library_matmuls(kernels::Executor& exec, const LibraryProblem& problem) {
  const auto library = std::make_shared<OneDnn>();
  if (!library->complete()) return {};
  std::vector<LibraryMatmul> ways;
  if (problem.operands == DType::float32) {
    ways.push_back({"onednn_sgemm", [library, &exec, problem] { sgemm_in_slabs(*library, exec, problem); }});
    if (problem.accumulate) return ways;
  }
  const auto primitive = std::make_shared<MatmulPrimitive>(library, problem);
  if (primitive->made()) ways.push_back({"onednn_matmul", [primitive, &exec] { primitive->run(exec.num_threads()); }});
  return ways;
}

}  // namespace megatron::cli
