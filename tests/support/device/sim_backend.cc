#include "tests/support/device/sim_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "src/base/ggml_deleter.h"
#include "src/device/backend_names.h"

namespace ebb {
namespace {

using CpuBackend = std::unique_ptr<ggml_backend, GgmlDeleter>;

struct SimQueue;

// Sim is the state that both queues and all buffers share. One thread at a time works.
struct Sim {
  std::recursive_mutex mutex;
  SimBackendFaults faults;
  ggml_op lacks = GGML_OP_NONE;
  int opened = 0;
  // `key` closes all of the memory at once, for each thread separately. Below 0: the processor has
  // no protection keys, and the memory stays open, since closing it page by page would take longer
  // than everything else.
  const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);

  void Open() const {
    if (key >= 0) pkey_set(key, 0);
  }
  void Close() const {
    if (key >= 0) pkey_set(key, PKEY_DISABLE_ACCESS);
  }
  void Check(SimBackendWork work) const {
    if (faults && faults(work)) GGML_ABORT("the simulated device gives up");
  }
};

Sim& TheSim() {
  static Sim sim;
  return sim;
}

// Opened makes the simulated memory readable and writable while it lives.
class Opened {
 public:
  Opened() : lock_(TheSim().mutex) {
    if (TheSim().opened++ == 0) TheSim().Open();
  }
  ~Opened() {
    if (--TheSim().opened == 0) TheSim().Close();
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

struct SimQueue {
  CpuBackend cpu;
  std::deque<std::function<void()>> waiting;
  uint64_t num_asked = 0, num_done = 0;

  void Ask(std::function<void()> work) {
    waiting.push_back(std::move(work));
    ++num_asked;
  }
  // Runs the queued work up to number `end`.
  void Work(uint64_t end) {
    const Opened opened;
    while (num_done < end && !waiting.empty()) {
      const auto work = std::move(waiting.front());
      waiting.pop_front();
      ++num_done;
      work();
    }
  }
};

SimQueue& QueueOf(ggml_backend_t backend) { return *static_cast<SimQueue*>(backend->context); }

struct SimEvent {
  SimQueue* queue = nullptr;
  uint64_t end = 0;
};

// --- Buffers ---

void FreeBuffer(ggml_backend_buffer_t buffer) { munmap(buffer->context, buffer->size); }
void* BaseOf(ggml_backend_buffer_t buffer) { return buffer->context; }
std::byte* At(const ggml_tensor* tensor, size_t offset) {
  return static_cast<std::byte*>(tensor->data) + offset;
}
void MemsetTensor(ggml_backend_buffer_t, ggml_tensor* tensor, uint8_t value, size_t offset,
                  size_t size) {
  const Opened opened;
  std::memset(At(tensor, offset), value, size);
}
void SetTensor(ggml_backend_buffer_t, ggml_tensor* tensor, const void* data, size_t offset,
               size_t size) {
  const Opened opened;
  TheSim().Check(SimBackendWork::kCopy);
  std::memcpy(At(tensor, offset), data, size);
}
void GetTensor(ggml_backend_buffer_t, const ggml_tensor* tensor, void* data, size_t offset,
               size_t size) {
  const Opened opened;
  TheSim().Check(SimBackendWork::kCopy);
  std::memcpy(data, At(tensor, offset), size);
}
ggml_backend_buffer_type_t BufferType();
bool CopyTensor(ggml_backend_buffer_t, const ggml_tensor* from, ggml_tensor* to) {
  if (from->buffer->buft != BufferType()) return false;
  const Opened opened;
  TheSim().Check(SimBackendWork::kCopy);
  std::memcpy(to->data, from->data, ggml_nbytes(from));
  return true;
}
void ClearBuffer(ggml_backend_buffer_t buffer, uint8_t value) {
  const Opened opened;
  std::memset(buffer->context, value, buffer->size);
}

ggml_backend_buffer_t AllocateBuffer(ggml_backend_buffer_type_t type, size_t size) {
  const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
  if (TheSim().faults && TheSim().faults(SimBackendWork::kAllocate)) return nullptr;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size = std::max(page, (size + page - 1) / page * page);
  void* const base =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  if (TheSim().key >= 0 && pkey_mprotect(base, size, PROT_READ | PROT_WRITE, TheSim().key) != 0) {
    munmap(base, size);
    return nullptr;
  }
  ggml_backend_buffer_i iface = {};
  iface.free_buffer = FreeBuffer;
  iface.get_base = BaseOf;
  iface.memset_tensor = MemsetTensor;
  iface.set_tensor = SetTensor;
  iface.get_tensor = GetTensor;
  iface.cpy_tensor = CopyTensor;
  iface.clear = ClearBuffer;
  return ggml_backend_buffer_init(type, iface, base, size);
}

ggml_backend_dev_t Device();

ggml_backend_buffer_type_t BufferType() {
  static ggml_backend_buffer_type type = [] {
    ggml_backend_buffer_type made = {};
    made.iface.get_name = [](ggml_backend_buffer_type_t) { return kSimBackend.data(); };
    made.iface.alloc_buffer = AllocateBuffer;
    made.iface.get_alignment = [](ggml_backend_buffer_type_t) { return size_t{64}; };
    made.device = Device();
    return made;
  }();
  return &type;
}

// --- Queues ---

void FreeQueue(ggml_backend_t backend) {
  delete &QueueOf(backend);
  delete backend;
}
void SetAsync(ggml_backend_t backend, ggml_tensor* tensor, const void* data, size_t offset,
              size_t size) {
  const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
  QueueOf(backend).Ask([to = At(tensor, offset), data, size] {
    TheSim().Check(SimBackendWork::kCopy);
    std::memcpy(to, data, size);
  });
}
void GetAsync(ggml_backend_t backend, const ggml_tensor* tensor, void* data, size_t offset,
              size_t size) {
  const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
  QueueOf(backend).Ask([from = At(tensor, offset), data, size] {
    TheSim().Check(SimBackendWork::kCopy);
    std::memcpy(data, from, size);
  });
}
void Synchronize(ggml_backend_t backend) {
  const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
  QueueOf(backend).Work(QueueOf(backend).num_asked);
}
// Returns whether flash attention's inputs begin at multiples of 16 bytes. ggml's Vulkan backend
// aborts at offsets that its driver cannot bind: all but multiples of 16 to 256 bytes, by driver.
bool BindsAlignedInputs(const ggml_tensor& node) {
  constexpr uintptr_t kBindingAlignment = 16;
  return node.op != GGML_OP_FLASH_ATTN_EXT ||
         std::ranges::all_of(node.src, [](const ggml_tensor* in) {
           return in == nullptr || reinterpret_cast<uintptr_t>(in->data) % kBindingAlignment == 0;
         });
}
// Computes the graph at once, after all work that was queued before, because the caller may change
// the graph once this returns.
ggml_status ComputeGraph(ggml_backend_t backend, ggml_cgraph* graph) {
  const Opened opened;
  SimQueue& queue = QueueOf(backend);
  queue.Work(queue.num_asked);
  TheSim().Check(SimBackendWork::kCompute);
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    if (!BindsAlignedInputs(*ggml_graph_node(graph, i))) return GGML_STATUS_FAILED;
  }
  return ggml_backend_graph_compute(queue.cpu.get(), graph);
}
void RecordEvent(ggml_backend_t backend, ggml_backend_event_t event) {
  const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
  *static_cast<SimEvent*>(event->context) = {.queue = &QueueOf(backend),
                                             .end = QueueOf(backend).num_asked};
}
void WaitForEvent(ggml_backend_t backend, ggml_backend_event_t event) {
  const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
  const SimEvent until = *static_cast<SimEvent*>(event->context);
  QueueOf(backend).Ask([until] {
    if (until.queue != nullptr) until.queue->Work(until.end);
  });
}

ggml_backend_t InitQueue(ggml_backend_dev_t device, const char*) {
  auto queue = std::make_unique<SimQueue>();
  queue->cpu.reset(ggml_backend_cpu_init());
  if (queue->cpu == nullptr) return nullptr;
  ggml_backend_cpu_set_n_threads(queue->cpu.get(), 1);
  static ggml_guid guid = {0x65, 0x62, 0x62, 0x73, 0x69, 0x6d};
  auto* const backend =
      new ggml_backend{.guid = &guid, .iface = {}, .device = device, .context = queue.release()};
  ggml_backend_i& iface = backend->iface;
  iface.get_name = [](ggml_backend_t) { return kSimBackend.data(); };
  iface.free = FreeQueue;
  iface.set_tensor_async = SetAsync;
  iface.get_tensor_async = GetAsync;
  iface.synchronize = Synchronize;
  iface.graph_compute = ComputeGraph;
  iface.event_record = RecordEvent;
  iface.event_wait = WaitForEvent;
  return backend;
}

// --- The device ---

ggml_backend_reg_t Registry();

ggml_backend_dev_t Device() {
  static ggml_backend_device device = [] {
    ggml_backend_device made = {};
    ggml_backend_device_i& iface = made.iface;
    iface.get_name = [](ggml_backend_dev_t) { return kSimBackend.data(); };
    iface.get_description = [](ggml_backend_dev_t) {
      return "ggml on this processor, simulating a device: for tests";
    };
    iface.get_memory = [](ggml_backend_dev_t, size_t* free, size_t* total) {
      *free = *total = size_t{64} << 30;
    };
    iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    iface.get_props = [](ggml_backend_dev_t dev, ggml_backend_dev_props* props) {
      *props = {};
      props->name = dev->iface.get_name(dev);
      props->description = dev->iface.get_description(dev);
      dev->iface.get_memory(dev, &props->memory_free, &props->memory_total);
      props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
      props->caps.async = true;
      props->caps.events = true;
    };
    iface.init_backend = InitQueue;
    iface.get_buffer_type = [](ggml_backend_dev_t) { return BufferType(); };
    iface.supports_op = [](ggml_backend_dev_t, const ggml_tensor* op) {
      const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
      if (op->op != GGML_OP_NONE && op->op == TheSim().lacks) return false;
      return ggml_backend_dev_supports_op(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU),
                                          op);
    };
    iface.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
      return type == BufferType();
    };
    iface.event_new = [](ggml_backend_dev_t dev) {
      return new ggml_backend_event{.device = dev, .context = new SimEvent()};
    };
    iface.event_free = [](ggml_backend_dev_t, ggml_backend_event_t event) {
      delete static_cast<SimEvent*>(event->context);
      delete event;
    };
    iface.event_synchronize = [](ggml_backend_dev_t, ggml_backend_event_t event) {
      const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
      const SimEvent until = *static_cast<SimEvent*>(event->context);
      if (until.queue != nullptr) until.queue->Work(until.end);
    };
    made.reg = Registry();
    return made;
  }();
  return &device;
}

ggml_backend_reg_t Registry() {
  static ggml_backend_reg registry = [] {
    ggml_backend_reg made = {};
    made.api_version = GGML_BACKEND_API_VERSION;
    made.iface.get_name = [](ggml_backend_reg_t) { return "Sim"; };
    made.iface.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };
    made.iface.get_device = [](ggml_backend_reg_t, size_t) { return Device(); };
    made.iface.get_proc_address = [](ggml_backend_reg_t, const char*) -> void* { return nullptr; };
    return made;
  }();
  return &registry;
}

const bool is_added = [] {
  AddTestDevice(Device());
  return true;
}();

}  // namespace

ggml_backend_dev_t SimBackendDevice() { return Device(); }

void SetSimBackendFaults(SimBackendFaults faults) {
  const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
  TheSim().faults = std::move(faults);
}

void SetSimBackendLacks(ggml_op op) {
  const std::lock_guard<std::recursive_mutex> lock(TheSim().mutex);
  TheSim().lacks = op;
}

}  // namespace ebb
