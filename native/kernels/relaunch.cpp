//go:build ignore

/*
 * Kernels launched again, linked into libmlxc.so of the CUDA build. MLX spends 5 to
 * 10 microseconds of the host's time on each operation of each evaluation, which is
 * longer than many of a decoding cycle's kernels take. Here the launches of one
 * evaluation are recorded, and from then on handed to the device at once, as a CUDA
 * graph.
 *
 * Recording. libmlx.so finds cuGraphAddKernelNode below before that of the driver,
 * because the loader looks up its undefined symbols in the library that was opened
 * first. It passes everything on and, while this thread records, keeps a copy.
 *
 * Contract. What is recorded is the graph between given inputs and results. It must
 * consist of custom kernels, each launched once and with inputs that lie row by row,
 * and of views: any other operation launches kernels that are not seen here, and the
 * recording is refused with a reason. What the inputs play no part in is evaluated
 * before, and stays as it is. The addresses of the inputs are put into the launches
 * anew each time. What lies between inputs and results gets places in memory of the
 * record's own, each for as long as it is needed; the results, and what the inputs
 * play no part in, stay alive with the record. Inputs stay alive until the device is
 * done with them: MLX would give their memory away, to the host as well, or back to
 * the system. Results of records need that not, and would be busy for longer. An array whose memory has moved since,
 * because the host read it, makes the record invalid. Results share the record's
 * memory, so it can run again only when nobody holds any of them (gf_record_state);
 * work on them that was handed over before is done before, for all of it goes through
 * one stream.
 *
 * Order. The launches run in the order in which MLX made them. One whose function's
 * name ends in _overlaps waits by itself for the one before (griddepcontrol.wait), so
 * its blocks may start while that one still runs.
 *
 * All functions are for the thread that owns MLX. None throws.
 *
 * Build: C++20, the headers of MLX, and cuda.h.
 */

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <cuda.h>

#include "mlx/array.h"
#include "mlx/event.h"
#include "mlx/fast_primitives.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

#include "launch.h"

using mlx::core::array;

// MLX's headers for CUDA want CUDA's compiler, so what is needed of them stands here:
// the layout of version 0.32.2, which the installer pins.
namespace mlx::core::cu {
struct CommandEncoder {
  void* device;
  CUstream stream;
};
struct CudaBuffer {
  void* data;
  size_t size;
  int device; // -1 for memory that the host can read
};
CommandEncoder& get_command_encoder(Stream s);
} // namespace mlx::core::cu

namespace {

thread_local std::vector<Launch>* recording = nullptr;

// The memory of all records' results. Records that end wait for the device.
thread_local std::unordered_set<const void*> owned;

const mlx::core::cu::CudaBuffer* buffer(const array& a) { return static_cast<const mlx::core::cu::CudaBuffer*>(a.buffer().ptr()); }

// The address that kernels know an array by; null where it has no memory.
char* address(const array& a) {
  const auto* b = buffer(a);
  return b && b->data ? static_cast<char*>(b->data) + a.offset() : nullptr;
}

bool evaluated(const array& a) { return a.status() != array::Status::unscheduled && a.data_shared_ptr() != nullptr; }

// Operations that give their input's memory, where they can; whether they did is checked afterwards.
const std::set<std::string> views = {
    "AsStrided", "Broadcast", "Contiguous", "Copy", "ExpandDims", "Flatten", "Reshape",
    "Slice", "Split", "Squeeze", "Transpose", "Unflatten"};

// An input's address in a launch, offset bytes into the array.
struct Place {
  size_t launch, value;
  ptrdiff_t offset;
};

struct Input {
  mlx::core::Shape shape;
  mlx::core::Dtype dtype;
  char* last;
  std::vector<Place> places;
};

struct Result {
  int input;  // which it is, or -1
  array made; // otherwise
  long held;  // by the record alone
};

class Record {
 public:
  Record(const std::vector<array>& in, const std::vector<array>& out, mlx::core::Stream stream);
  ~Record();
  Record(const Record&) = delete;

  // 1: can run; 0: somebody holds a result; -1: is of no use any more.
  int state() const;
  void run(const std::vector<array>& in);
  // The results, in arrays of their own.
  std::vector<array> results(const std::vector<array>& in);
  size_t launches() const { return launches_.size(); }
  // Memory that is the record's own, results included.
  size_t bytes() const;

 private:
  void instantiate();
  void find(const std::vector<std::pair<array, size_t>>& shares);
  void place(const std::vector<array>& between);
  void drop();

  mlx::core::Stream stream_;
  std::vector<Launch> launches_;
  std::vector<std::pair<array, char*>> kept_;
  std::vector<Input> inputs_;
  std::vector<Result> results_;
  size_t between_ = 0; // bytes
  array pulse_; // its negative is what marks the end of a run
  CUgraph graph_{};
  CUgraphExec exec_{};
  bool broken_ = false;
};

// What lies between inputs and results, each array after those it is made of.
struct Walk {
  std::unordered_map<std::uintptr_t, size_t> inputs;
  std::unordered_map<std::uintptr_t, bool> depends; // on the inputs, by array
  std::vector<array> order;                         // those that depend
  std::vector<array> constants;                     // to be evaluated before

  void visit(const array& root) {
    std::vector<std::pair<array, size_t>> stack{{root, 0}};
    while (!stack.empty()) {
      auto& [a, next] = stack.back();
      if (next == 0 && (depends.count(a.id()) || leaf(a))) {
        stack.pop_back();
        continue;
      }
      if (next < a.inputs().size()) {
        array to = a.inputs()[next++];
        stack.emplace_back(to, 0);
        continue;
      }
      bool any = false;
      for (const auto& x : a.inputs()) any = any || depends.at(x.id());
      for (const auto& x : a.inputs()) {
        if (any && !depends.at(x.id()) && x.has_primitive() && !evaluated(x)) constants.push_back(x);
      }
      depends[a.id()] = any;
      for (const auto& x : a.siblings()) depends[x.id()] = any;
      if (any) order.push_back(a);
      stack.pop_back();
    }
  }

 private:
  bool leaf(const array& a) {
    bool input = inputs.count(a.id()) > 0;
    if (!input && a.has_primitive() && !evaluated(a)) return false;
    depends[a.id()] = input;
    return true;
  }
};

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error(why); }

Record::Record(const std::vector<array>& in, const std::vector<array>& out, mlx::core::Stream stream)
    : stream_(stream), pulse_(mlx::core::full({4}, 1, mlx::core::int32, stream)) {
  Walk walk;
  for (size_t i = 0; i < in.size(); i++) {
    if (!evaluated(in[i])) refuse("an input has no memory yet");
    if (!in[i].flags().row_contiguous) refuse("an input does not lie row by row");
    if (!walk.inputs.emplace(in[i].id(), i).second) refuse("an input is given twice");
  }
  for (const auto& a : out) walk.visit(a);
  std::set<std::uintptr_t> kernels;
  std::vector<std::pair<array, array>> same; // views, and what they are views of
  std::vector<std::vector<array>> read;      // by the kernels
  for (const auto& a : walk.order) {
    std::string name = a.primitive().name();
    if (a.primitive().stream() != stream) refuse("the operation " + name + " is of another stream");
    if (name == "CustomKernel") {
      const auto& kernel = static_cast<const mlx::core::fast::CustomKernel&>(a.primitive());
      const auto state = kernel.state();
      if (std::get<6>(state).has_value()) refuse("the kernel " + std::get<0>(state) + " has its outputs filled before");
      if (kernels.insert(a.primitive_id()).second && std::get<5>(state)) read.push_back(a.inputs());
    } else if (views.count(name) && !a.inputs().empty()) {
      same.emplace_back(a, a.inputs()[0]);
    } else {
      refuse("the operation " + name + " is no kernel of ours");
    }
  }
  if (kernels.empty()) refuse("there are no kernels");
  walk.constants.push_back(pulse_);
  mlx::core::eval(walk.constants);
  std::vector<array> all;
  for (const auto& a : walk.order) {
    for (const auto& x : a.outputs()) all.push_back(x);
  }
  for (const auto& a : walk.order) {
    for (const auto& x : a.inputs()) {
      if (!walk.inputs.count(x.id()) && !walk.depends.at(x.id())) all.push_back(x);
    }
  }

  recording = &launches_;
  try {
    mlx::core::async_eval(out);
  } catch (...) {
    recording = nullptr;
    throw;
  }
  recording = nullptr;

  if (launches_.size() != kernels.size())
    refuse(std::to_string(launches_.size()) + " launches were seen of " + std::to_string(kernels.size()) + " kernels");
  for (const auto& l : launches_) {
    if (!l.whole) refuse("the driver does not tell the sizes of a kernel's parameters");
  }
  for (const auto& [a, of] : same) {
    if (!evaluated(a) || a.data_shared_ptr() != of.data_shared_ptr()) refuse("a view was copied");
  }
  for (const auto& list : read) {
    for (const auto& a : list) {
      if (!a.flags().row_contiguous) refuse("a kernel's input was copied, because it does not lie row by row");
    }
  }

  // Views of an input move with it; all else stays.
  std::unordered_map<std::uintptr_t, size_t> of; // arrays that share an input's memory
  std::vector<std::pair<array, size_t>> shares;
  for (size_t i = 0; i < in.size(); i++) {
    of.emplace(in[i].id(), i);
    shares.emplace_back(in[i], i);
    inputs_.push_back(Input{in[i].shape(), in[i].dtype(), address(in[i]), {}});
  }
  for (const auto& [a, from] : same) {
    if (auto it = of.find(from.id()); it != of.end()) {
      of.emplace(a.id(), it->second);
      shares.emplace_back(a, it->second);
    }
  }
  std::unordered_set<const void*> given; // the results' memory
  for (const auto& a : out) given.insert(a.data_shared_ptr().get());
  std::unordered_set<std::uintptr_t> have;
  std::unordered_map<const void*, long> holders;
  std::vector<array> between;
  for (const auto& a : all) {
    if (of.count(a.id()) || !evaluated(a) || !have.insert(a.id()).second) continue;
    if (walk.depends.at(a.id()) && !given.count(a.data_shared_ptr().get())) {
      between.push_back(a);
      continue;
    }
    kept_.emplace_back(a, address(a));
    holders[a.data_shared_ptr().get()]++;
  }
  find(shares);
  place(between);
  for (const auto& a : out) {
    if (auto it = walk.inputs.find(a.id()); it != walk.inputs.end()) {
      results_.push_back(Result{static_cast<int>(it->second), pulse_, 0});
      continue;
    }
    if (!have.count(a.id())) refuse("a result is a view of an input, or no kernel's");
    results_.push_back(Result{-1, a, holders.at(a.data_shared_ptr().get())});
  }
  instantiate();
  for (const auto& r : results_) {
    if (r.input < 0) owned.insert(r.made.data_shared_ptr().get());
  }
}

// find notes where launches have the addresses of inputs, and of their views.
void Record::find(const std::vector<std::pair<array, size_t>>& shares) {
  std::unordered_map<char*, std::pair<size_t, ptrdiff_t>> known; // by address: the input, and the offset
  for (const auto& [a, i] : shares) {
    if (a.size() == 0) continue;
    auto it = known.emplace(address(a), std::make_pair(i, address(a) - inputs_[i].last)).first;
    if (it->second.first != i) refuse("two inputs share their memory");
  }
  for (const auto& [a, p] : kept_) {
    if (a.size() > 0 && known.count(p)) refuse("an input shares its memory with what stays as it is");
  }
  for (size_t l = 0; l < launches_.size(); l++) {
    for (size_t v = 0; v < launches_[l].values.size(); v++) {
      if (!launches_[l].pointer(v)) continue;
      if (auto it = known.find(launches_[l].get(v)); it != known.end()) inputs_[it->second.first].places.push_back(Place{l, v, it->second.second});
    }
  }
}

// place moves what lies between inputs and results to memory that those share which
// are not needed at the same time.
void Record::place(const std::vector<array>& between) {
  struct Buffer {
    char* base;
    size_t size, first, last, at;
    std::vector<Place> places;
  };
  std::vector<Buffer> buffers;
  std::unordered_set<const void*> seen;
  for (const auto& a : between) {
    if (!seen.insert(a.data_shared_ptr().get()).second) continue;
    const auto* b = buffer(a);
    if (b && b->size > 0) buffers.push_back(Buffer{static_cast<char*>(b->data), b->size, SIZE_MAX, 0, 0, {}});
  }
  std::sort(buffers.begin(), buffers.end(), [](const Buffer& x, const Buffer& y) { return x.base < y.base; });
  for (size_t l = 0; l < launches_.size(); l++) {
    for (size_t v = 0; v < launches_[l].values.size(); v++) {
      if (!launches_[l].pointer(v)) continue;
      char* p = launches_[l].get(v);
      auto it = std::upper_bound(buffers.begin(), buffers.end(), p, [](char* x, const Buffer& y) { return x < y.base; });
      if (it == buffers.begin() || p >= (--it)->base + it->size) continue;
      it->places.push_back(Place{l, v, p - it->base});
      it->first = std::min(it->first, l), it->last = l;
    }
  }
  std::vector<std::vector<Buffer*>> starts(launches_.size()), ends(launches_.size());
  for (auto& b : buffers) {
    if (b.places.empty()) continue;
    b.size = (b.size + 255) / 256 * 256;
    starts[b.first].push_back(&b), ends[b.last].push_back(&b);
  }
  // First fit among the gaps that those before have left.
  std::vector<Buffer*> live;
  size_t total = 0;
  for (size_t l = 0; l < launches_.size(); l++) {
    for (auto* b : starts[l]) {
      size_t at = 0;
      auto gap = live.begin();
      for (; gap != live.end() && (*gap)->at - at < b->size; ++gap) at = (*gap)->at + (*gap)->size;
      b->at = at;
      live.insert(gap, b);
      total = std::max(total, at + b->size);
    }
    for (auto* b : ends[l]) live.erase(std::find(live.begin(), live.end(), b));
  }
  if (total == 0) return;
  array memory = mlx::core::full({static_cast<int>(total / 256), 256}, 0, mlx::core::uint8, stream_);
  mlx::core::eval({memory});
  kept_.emplace_back(memory, address(memory));
  between_ = total;
  for (const auto& b : buffers) {
    for (const auto& p : b.places) launches_[p.launch].put(p.value, address(memory) + b.at + p.offset);
  }
}

void Record::instantiate() {
  DRIVER(cuGraphCreate, "cuGraphCreate");
  DRIVER(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags");
  static auto* add = driver<AddKernel>("cuGraphAddKernelNode_v2");
  static auto* set = driver<CUresult(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*)>("cuGraphExecKernelNodeSetParams_v2");
  static auto* join = driver<CUresult(CUgraph, const CUgraphNode*, const CUgraphNode*, const CUgraphEdgeData*, size_t)>("cuGraphAddDependencies_v2");
  if (!cuGraphCreate || !cuGraphInstantiateWithFlags || !add || !set) refuse("the driver lacks graphs");
  check(cuGraphCreate(&graph_, 0), "cuGraphCreate");
  try {
    CUgraphNode before{};
    const bool may = join && overlapping();
    for (auto& l : launches_) {
      l.point();
      bool overlaps = l.overlaps && before && may;
      check(add(&l.at, graph_, before && !overlaps ? &before : nullptr, before && !overlaps ? 1 : 0, &l.node), "cuGraphAddKernelNode");
      if (overlaps) {
        CUgraphEdgeData edge{};
        edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
        edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
        check(join(graph_, &before, &l.at, &edge, 1), "cuGraphAddDependencies");
      }
      before = l.at;
    }
    check(cuGraphInstantiateWithFlags(&exec_, graph_, 0), "cuGraphInstantiateWithFlags");
  } catch (...) {
    drop();
    throw;
  }
}

void Record::drop() {
  DRIVER(cuGraphExecDestroy, "cuGraphExecDestroy");
  DRIVER(cuGraphDestroy, "cuGraphDestroy");
  if (exec_) cuGraphExecDestroy(exec_);
  if (graph_) cuGraphDestroy(graph_);
  exec_ = nullptr, graph_ = nullptr;
}

Record::~Record() {
  DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  try {
    if (exec_ && cuStreamSynchronize) cuStreamSynchronize(mlx::core::cu::get_command_encoder(stream_).stream);
  } catch (...) { // the stream has ended, and all of its work
  }
  for (const auto& r : results_) {
    if (r.input < 0) owned.erase(r.made.data_shared_ptr().get());
  }
  drop();
}

int Record::state() const {
  if (broken_) return -1;
  for (const auto& [a, p] : kept_) {
    if (address(a) != p) return -1;
  }
  for (const auto& r : results_) {
    if (r.input < 0 && r.made.data_shared_ptr().use_count() != r.held) return 0;
  }
  return 1;
}

size_t Record::bytes() const {
  size_t sum = between_;
  std::unordered_set<const void*> seen;
  for (const auto& r : results_) {
    if (r.input < 0 && seen.insert(r.made.data_shared_ptr().get()).second) sum += r.made.buffer_size();
  }
  return sum;
}

void Record::run(const std::vector<array>& in) {
  static auto* set = driver<CUresult(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*)>("cuGraphExecKernelNodeSetParams_v2");
  DRIVER(cuGraphLaunch, "cuGraphLaunch");
  if (!set || !cuGraphLaunch) refuse("the driver lacks graphs");
  if (in.size() != inputs_.size()) refuse("another number of inputs");
  for (size_t i = 0; i < in.size(); i++) {
    if (!evaluated(in[i]) || in[i].shape() != inputs_[i].shape || in[i].dtype() != inputs_[i].dtype || !in[i].flags().row_contiguous)
      refuse("input " + std::to_string(i) + " is of another kind");
    // What this stream makes is there when the launches run.
    if (array a = in[i]; a.event().valid() && a.event().stream() != stream_) a.wait();
  }
  broken_ = true; // until all launches are as they should be
  std::vector<bool> changed(launches_.size());
  for (size_t i = 0; i < in.size(); i++) {
    char* now = address(in[i]);
    if (now == inputs_[i].last) continue;
    inputs_[i].last = now;
    for (const auto& at : inputs_[i].places) {
      launches_[at.launch].put(at.value, now + at.offset);
      changed[at.launch] = true;
    }
  }
  for (size_t l = 0; l < launches_.size(); l++) {
    if (changed[l]) check(set(exec_, launches_[l].at, &launches_[l].node), "cuGraphExecKernelNodeSetParams");
  }
  check(cuGraphLaunch(exec_, mlx::core::cu::get_command_encoder(stream_).stream), "cuGraphLaunch");
  broken_ = false;
}

std::vector<array> Record::results(const std::vector<array>& in) {
  // MLX's own mark of when the stream is done with all that came before.
  array mark = mlx::core::negative(pulse_, stream_);
  std::vector<array> lent;
  for (const auto& a : in) {
    if (!owned.count(a.data_shared_ptr().get())) lent.push_back(a);
  }
  if (!lent.empty()) mark = mlx::core::depends({mark}, lent)[0];
  mlx::core::async_eval({mark});
  std::vector<array> out;
  for (const auto& r : results_) {
    if (r.input >= 0) {
      out.push_back(in[r.input]);
      continue;
    }
    array a(r.made.shape(), r.made.dtype(), nullptr, {});
    a.copy_shared_buffer(r.made);
    a.attach_event(mark.event());
    a.set_status(array::Status::evaluated);
    out.push_back(std::move(a));
  }
  return out;
}

std::vector<array> arrays(const std::uintptr_t* list, size_t n) {
  std::vector<array> out;
  for (size_t i = 0; i < n; i++) out.push_back(*reinterpret_cast<array*>(list[i]));
  return out;
}

void give(std::vector<array> from, std::uintptr_t* to) {
  for (auto& a : from) *to++ = reinterpret_cast<std::uintptr_t>(new array(std::move(a)));
}

void tell(char* why, size_t cap, const char* what) { std::snprintf(why, cap, "%s", what); }

} // namespace

extern "C" {

__attribute__((visibility("default"))) CUresult CUDAAPI
cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t n, const CUDA_KERNEL_NODE_PARAMS* p) {
  static auto* real = driver<AddKernel>("cuGraphAddKernelNode_v2");
  if (!real) return CUDA_ERROR_NOT_INITIALIZED;
  if (recording && p) recording->emplace_back(*p);
  return p && clustered(p->func) ? apart(real, node, graph, before, n, p) : real(node, graph, before, n, p);
}

// gf_clusters is 1 where kernels may ask for clusters of two blocks.
__attribute__((visibility("default"))) int gf_clusters(void) { return attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) > 0 && add_child() != nullptr; }

// gf_record evaluates out, arrays made of in, and records the kernels; the results
// are given as gf_record_run gives them. It is null where that is refused, why says
// for what reason; out may be evaluated then or not.
__attribute__((visibility("default"))) void*
gf_record(const std::uintptr_t* in, size_t n_in, const std::uintptr_t* out, size_t n_out, std::uintptr_t stream, std::uintptr_t* results, char* why, size_t cap) {
  try {
    auto inputs = arrays(in, n_in);
    auto record = std::make_unique<Record>(inputs, arrays(out, n_out), *reinterpret_cast<mlx::core::Stream*>(stream));
    give(record->results(inputs), results);
    return record.release();
  } catch (const std::exception& e) {
    tell(why, cap, e.what());
  } catch (...) {
    tell(why, cap, "an unknown exception");
  }
  return nullptr;
}

__attribute__((visibility("default"))) int gf_record_state(const void* record) { return static_cast<const Record*>(record)->state(); }

__attribute__((visibility("default"))) size_t gf_record_launches(const void* record) { return static_cast<const Record*>(record)->launches(); }

__attribute__((visibility("default"))) size_t gf_record_bytes(const void* record) { return static_cast<const Record*>(record)->bytes(); }

// gf_record_run launches the kernels with other inputs, which are evaluated or on
// their way. 0 means that they were launched.
__attribute__((visibility("default"))) int
gf_record_run(void* record, const std::uintptr_t* in, size_t n, std::uintptr_t* results, char* why, size_t cap) {
  try {
    auto inputs = arrays(in, n);
    static_cast<Record*>(record)->run(inputs);
    give(static_cast<Record*>(record)->results(inputs), results);
    return 0;
  } catch (const std::exception& e) {
    tell(why, cap, e.what());
  } catch (...) {
    tell(why, cap, "an unknown exception");
  }
  return 1;
}

__attribute__((visibility("default"))) void gf_record_free(void* record) {
  try {
    delete static_cast<Record*>(record);
  } catch (...) {
  }
}
}
