#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/base/ggml_deleter.h"
#include "src/base/sanitizers.h"

namespace ebb {
namespace {

using Pool = std::unique_ptr<ggml_threadpool, GgmlDeleter>;
using Context = std::unique_ptr<ggml_context, GgmlDeleter>;

Pool NewPool(int threads) {
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  params.poll = 1;
  return Pool(ggml_threadpool_new(&params));
}

ggml_status Compute(ggml_cgraph* graph, ggml_threadpool* pool, int threads,
                    ggml_abort_callback abort = nullptr, void* abort_data = nullptr) {
  ggml_cplan plan = ggml_graph_plan(graph, threads, pool);
  std::vector<uint8_t> work(plan.work_size);
  plan.work_data = work.data();
  plan.abort_callback = abort;
  plan.abort_callback_data = abort_data;
  return ggml_graph_compute(graph, &plan);
}

// A graph of nodes that call `run`, each after the one before.
class ChainOfNodes {
 public:
  ChainOfNodes(int num_nodes, ggml_custom_op_t run, void* userdata)
      : context_(ggml_init({.mem_size = size_t(num_nodes + 2) * (ggml_tensor_overhead() + 64) +
                                        ggml_graph_overhead_custom(num_nodes + 2, false),
                            .mem_buffer = nullptr,
                            .no_alloc = false})),
        graph_(ggml_new_graph_custom(context_.get(), num_nodes + 2, false)) {
    ggml_tensor* node = nullptr;
    for (int i = 0; i < num_nodes; ++i) {
      node = ggml_custom_4d(context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, &node, i > 0 ? 1 : 0, run,
                            GGML_N_TASKS_MAX, userdata);
      std::memcpy(node->data, &i, sizeof(i));
    }
    ggml_build_forward_expand(graph_, node);
  }
  [[nodiscard]] ggml_cgraph* graph() const { return graph_; }
  // That of the node, 0 for the first one of the chain.
  [[nodiscard]] static int IndexOf(const ggml_tensor* node) {
    int index = 0;
    std::memcpy(&index, node->data, sizeof(index));
    return index;
  }

 private:
  Context context_;
  ggml_cgraph* graph_;
};

// Holds each node to what a graph promises: its parts are computed once each, and only when all
// parts of the node before are done. Some parts take a while, or sleep for longer than anybody
// looks.
struct Watch {
  static constexpr int kMostThreads = 8;

  static void Run(ggml_tensor* node, int thread, int num_threads, void* self) {
    static_cast<Watch*>(self)->Part(ChainOfNodes::IndexOf(node), thread, num_threads);
  }

  void Part(int node, int part, int num_parts) {
    if (parts_begun[part].fetch_add(1) != begun_before + node) ++failures;
    for (int i = 0; i < num_parts; ++i) {
      // Node `node` is the one of the moment: the others have been in it, or not yet.
      const int64_t others = parts_done[i].load();
      if (others != begun_before + node && others != begun_before + node + 1) ++failures;
    }
    thread_local std::mt19937 random(std::random_device{}());
    const uint32_t draw = random() % 4096;
    if (draw == 0) std::this_thread::sleep_for(std::chrono::microseconds(80));
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(draw < 99 ? 999 : 0);
    while (std::chrono::steady_clock::now() < end) {
    }
    parts_done[part].fetch_add(1);
  }

  std::atomic<int64_t> parts_begun[kMostThreads] = {}, parts_done[kMostThreads] = {};
  int64_t begun_before = 0;  // nodes of the graphs before
  std::atomic<int> failures = 0;
};

TEST(ThreadTeam, AMillionNodesLoseNoPartAndNoWakeUp) {
  constexpr int kNodes = 1000;
  const int graphs = kThreadSanitizer ? 100 : 1000;
  for (const int threads : {2, 3}) {
    const Pool pool = NewPool(threads);
    Watch watch;
    const ChainOfNodes chain(kNodes, Watch::Run, &watch);
    for (int i = 0; i < graphs / 2; ++i) {
      ASSERT_EQ(Compute(chain.graph(), pool.get(), threads), GGML_STATUS_SUCCESS);
      watch.begun_before += kNodes;
    }
    for (int i = 0; i < threads; ++i) EXPECT_EQ(watch.parts_done[i], watch.begun_before);
    EXPECT_EQ(watch.failures, 0);
  }
}

TEST(ThreadTeam, AGraphMayHaveFewerThreadsThanThePool) {
  constexpr int kNodes = 20;
  const Pool pool = NewPool(4);
  for (int graph = 0; graph < 200; ++graph) {
    const int threads = 1 + graph * 7 % 4;
    Watch watch;
    const ChainOfNodes chain(kNodes, Watch::Run, &watch);
    ASSERT_EQ(Compute(chain.graph(), pool.get(), threads), GGML_STATUS_SUCCESS);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(watch.parts_done[i], i < threads ? kNodes : 0);
    EXPECT_EQ(watch.failures, 0);
  }
}

TEST(ThreadTeam, PoolsEndWhateverTheirThreadsDo) {
  Watch watch;
  const ChainOfNodes chain(3, Watch::Run, &watch);
  for (int i = 0; i < 200; ++i) {
    const Pool pool = NewPool(3);
    if (i % 3 == 0) continue;
    ASSERT_EQ(Compute(chain.graph(), pool.get(), 3), GGML_STATUS_SUCCESS);
    watch.begun_before += 3;
    if (i % 3 == 1) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  EXPECT_EQ(watch.failures, 0);
}

TEST(ThreadTeam, PausedPoolsAndPoolsOfOneGraphComputeToo) {
  Watch watch;
  const ChainOfNodes chain(30, Watch::Run, &watch);
  const Pool pool = NewPool(2);
  for (int i = 0; i < 30; ++i) {
    if (i % 3 == 0) ggml_threadpool_pause(pool.get());
    if (i % 6 == 0) ggml_threadpool_resume(pool.get());
    ASSERT_EQ(Compute(chain.graph(), i % 2 == 0 ? pool.get() : nullptr, 2), GGML_STATUS_SUCCESS);
    watch.begun_before += 30;
  }
  EXPECT_EQ(watch.failures, 0);
}

TEST(ThreadTeam, AGraphEndsWhereTheCallbackSaysSo) {
  const Pool pool = NewPool(2);
  for (int last = 1; last < 10; ++last) {
    Watch watch;
    const ChainOfNodes chain(10, Watch::Run, &watch);
    int asked = 0;
    struct Asked {
      int* asked;
      int last;
    } data = {&asked, last};
    const auto abort = [](void* of) {
      const auto* data = static_cast<Asked*>(of);
      return ++*data->asked == data->last;
    };
    EXPECT_EQ(Compute(chain.graph(), pool.get(), 2, abort, &data), GGML_STATUS_ABORTED);
    EXPECT_EQ(watch.parts_done[0], last);
    EXPECT_EQ(watch.parts_done[1], last);
    EXPECT_EQ(asked, last);
  }
}

// --- A thread that is away
// -------------------------------------------------------------------------

std::atomic<pthread_t> other_thread;
std::atomic<bool> is_away, may_return;

// Where a thread stands that has lost its processor.
void BeAway(int) {
  is_away = true;
  while (!may_return) {
  }
  is_away = false;
}

struct Counts {
  std::atomic<int> on_main = 0, on_others = 0;
  pthread_t main = pthread_self();

  static void Run(ggml_tensor*, int, int, void* self) {
    auto& counts = *static_cast<Counts*>(self);
    if (pthread_equal(pthread_self(), counts.main) != 0) {
      ++counts.on_main;
    } else {
      other_thread = pthread_self();
      ++counts.on_others;
    }
  }
};

TEST(ThreadTeam, AThreadThatIsAwayHoldsUpNobody) {
  constexpr int kNodes = 50;
  const Pool pool = NewPool(2);
  Counts counts;
  const ChainOfNodes chain(kNodes, Counts::Run, &counts);
  while (counts.on_others == 0) {
    ASSERT_EQ(Compute(chain.graph(), pool.get(), 2), GGML_STATUS_SUCCESS);
  }
  struct sigaction action = {}, before = {};
  action.sa_handler = BeAway;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  may_return = false;
  ASSERT_EQ(pthread_kill(other_thread.load(), SIGUSR1), 0);
  while (!is_away) std::this_thread::yield();
  counts.on_main = counts.on_others = 0;
  EXPECT_EQ(Compute(chain.graph(), pool.get(), 2), GGML_STATUS_SUCCESS);
  EXPECT_TRUE(is_away);
  EXPECT_EQ(counts.on_main, 2 * kNodes);
  EXPECT_EQ(counts.on_others, 0);
  may_return = true;
  while (is_away) std::this_thread::yield();
  // It finds its way back.
  for (int i = 0; counts.on_others == 0 && i < 100000; ++i) {
    ASSERT_EQ(Compute(chain.graph(), pool.get(), 2), GGML_STATUS_SUCCESS);
  }
  EXPECT_GT(counts.on_others, 0);
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

// --- Bits
// ------------------------------------------------------------------------------------------

// The layouts that ggml has for this processor beside the plain one, which is the null pointer.
std::vector<ggml_backend_buffer_type_t> Layouts() {
  using GetExtra = ggml_backend_buffer_type_t* (*)(ggml_backend_dev_t);
  ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  const auto get = reinterpret_cast<GetExtra>(ggml_backend_reg_get_proc_address(
      ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
  std::vector<ggml_backend_buffer_type_t> layouts = {nullptr};
  if (get == nullptr) return layouts;
  for (auto* layout = get(cpu); layout != nullptr && *layout != nullptr; ++layout) {
    layouts.push_back(*layout);
  }
  return layouts;
}

// Products of a type's weights with inputs of several shapes, and nodes that have barriers inside.
class ProductGraph {
 public:
  // The layout: null where ggml does not have the type in it.
  static std::unique_ptr<ProductGraph> Create(ggml_type type, ggml_backend_buffer_type_t layout) {
    auto graph = std::make_unique<ProductGraph>(type, layout);
    if (layout == nullptr) return graph;
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    for (const ggml_tensor* product : graph->products_) {
      if (!ggml_backend_dev_supports_op(cpu, product)) return nullptr;
    }
    graph->MoveWeight();
    return graph;
  }

  explicit ProductGraph(ggml_type type, ggml_backend_buffer_type_t layout)
      : context_(
            ggml_init({.mem_size = size_t{64} << 20, .mem_buffer = nullptr, .no_alloc = false})),
        graph_(ggml_new_graph(context_.get())) {
    constexpr int64_t kColumns = 512, kRows = 96;
    weight_ = ggml_new_tensor_2d(context_.get(), type, kColumns, kRows);
    const std::vector<float> values = Values(kColumns * kRows);
    ggml_quantize_chunk(type, values.data(), weight_->data, 0, kRows, kColumns, nullptr);
    if (layout != nullptr) {
      buffer_.reset(ggml_backend_buft_alloc_buffer(
          layout, ggml_backend_buft_get_alloc_size(layout, weight_)));
      weight_->buffer = buffer_.get();
    }
    ggml_tensor* norm = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, kColumns);
    std::memcpy(norm->data, values.data(), ggml_nbytes(norm));
    for (const auto& [columns, planes] : {std::pair{1, 1}, {1, 5}, {2, 1}, {9, 3}, {40, 1}}) {
      ggml_tensor* x = ggml_new_tensor_3d(context_.get(), GGML_TYPE_F32, kColumns, columns, planes);
      const std::vector<float> inputs = Values(ggml_nelements(x));
      std::memcpy(x->data, inputs.data(), ggml_nbytes(x));
      // ggml computes the norm and its weight as one node.
      x = ggml_mul(context_.get(), ggml_rms_norm(context_.get(), x, 1e-5f), norm);
      ggml_tensor* y = ggml_mul_mat(context_.get(), weight_, x);
      products_.push_back(y);
      y = ggml_add(context_.get(), y, ggml_diag_mask_inf(context_.get(), y, 1));
      results_.push_back(y);
      ggml_build_forward_expand(graph_, y);
    }
  }

  std::vector<float> Run(ggml_threadpool* pool, int threads) {
    // What a run leaves out must not be there from the run before.
    for (const ggml_tensor* y : products_) std::memset(y->data, 0xff, ggml_nbytes(y));
    EXPECT_EQ(Compute(graph_, pool, threads), GGML_STATUS_SUCCESS);
    std::vector<float> all;
    for (const ggml_tensor* y : results_) {
      const auto* data = static_cast<const float*>(y->data);
      all.insert(all.end(), data, data + ggml_nelements(y));
    }
    return all;
  }

 private:
  void MoveWeight() {
    const std::vector<std::byte> plain(
        static_cast<std::byte*>(weight_->data),
        static_cast<std::byte*>(weight_->data) + ggml_nbytes(weight_));
    weight_->buffer = nullptr;
    weight_->data = nullptr;
    ASSERT_EQ(ggml_backend_tensor_alloc(buffer_.get(), weight_,
                                        ggml_backend_buffer_get_base(buffer_.get())),
              GGML_STATUS_SUCCESS);
    ggml_backend_tensor_set(weight_, plain.data(), 0, plain.size());
  }

  static std::vector<float> Values(int64_t num) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> values(num);
    for (float& value : values) value = normal(random);
    return values;
  }

  Context context_;
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer_;  // the weight's, unless it is plain
  ggml_cgraph* graph_;
  ggml_tensor* weight_ = nullptr;
  std::vector<ggml_tensor*> products_, results_;
};

TEST(ThreadTeam, ProductsHaveTheBitsOfOneThread) {
  int in_layouts = 0;
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0,
                               GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K}) {
    for (ggml_backend_buffer_type_t layout : Layouts()) {
      const auto graph = ProductGraph::Create(type, layout);
      if (graph == nullptr) continue;
      in_layouts += layout != nullptr ? 1 : 0;
      const Pool one = NewPool(1);
      const std::vector<float> expected = graph->Run(one.get(), 1);
      for (const int threads : {2, 3, 5}) {
        const Pool pool = NewPool(threads);
        for (int i = 0; i < 5; ++i) {
          const std::vector<float> found = graph->Run(pool.get(), threads);
          ASSERT_EQ(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)), 0)
              << ggml_type_name(type) << ", " << threads << " threads";
        }
      }
    }
  }
  std::cout << in_layouts << " types in layouts beside the plain one\n";
}

}  // namespace
}  // namespace ebb
