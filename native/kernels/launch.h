/*
 * What relaunch.cpp needs of the CUDA driver: its functions, which are looked up and not
 * linked; what the device can do; a kernel's launch; and launches in clusters.
 *
 * Clusters. MLX updates graphs that it has instantiated to others of the same form, and
 * the driver lets it, but the new function does not get its own clusters: it computes
 * nonsense, or ends the context. So a launch whose function asks for clusters goes into
 * MLX's graph as a graph of its own, which no update turns into a plain launch, or back;
 * MLX instantiates anew then. All such functions ask for clusters of two.
 */
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda.h>
#include <dlfcn.h>

namespace {

template <typename F>
F* driver(const char* name) {
  static void* lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return lib ? reinterpret_cast<F*>(dlsym(lib, name)) : nullptr;
}

#define DRIVER(f, name) static auto* f = driver<decltype(::f)>(name)

void check(CUresult rc, const char* what) {
  if (rc != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(static_cast<int>(rc)));
}

// 0 where the device does not tell.
int attribute(CUdevice_attribute a) {
  DRIVER(cuCtxGetDevice, "cuCtxGetDevice");
  DRIVER(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  CUdevice device{};
  int value = 0;
  bool ok = cuCtxGetDevice && cuDeviceGetAttribute && cuCtxGetDevice(&device) == CUDA_SUCCESS && cuDeviceGetAttribute(&value, a, device) == CUDA_SUCCESS;
  return ok ? value : 0;
}

// Devices before sm_90 know no overlapping launches, and kernels for them do not wait.
bool overlapping() { return attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9; }

using AddKernel = CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS*);
using AddChild = CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraph);

AddChild* add_child() {
  static auto* f = driver<AddChild>("cuGraphAddChildGraphNode");
  return f;
}

// clustered says that a function's blocks are clusters, by its text.
bool clustered(CUfunction f) {
  DRIVER(cuFuncGetAttribute, "cuFuncGetAttribute");
  int width = 0;
  return f && cuFuncGetAttribute && cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, f) == CUDA_SUCCESS && width > 1;
}

// apart adds a launch as a graph of its own.
CUresult apart(AddKernel* add, CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t n, const CUDA_KERNEL_NODE_PARAMS* p) {
  DRIVER(cuGraphCreate, "cuGraphCreate");
  DRIVER(cuGraphDestroy, "cuGraphDestroy");
  if (!cuGraphCreate || !cuGraphDestroy || !add_child()) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraph own{};
  CUgraphNode launch{};
  CUresult rc = cuGraphCreate(&own, 0);
  if (rc != CUDA_SUCCESS) return rc;
  rc = add(&launch, own, nullptr, 0, p);
  if (rc == CUDA_SUCCESS) rc = add_child()(node, graph, before, n, own);
  cuGraphDestroy(own);
  return rc;
}

// A kernel's launch, with the values of its parameters.
struct Launch {
  CUDA_KERNEL_NODE_PARAMS node{};
  std::vector<std::vector<char>> values;
  std::vector<void*> pointers; // to values, in order
  CUgraphNode at{};
  bool whole = false, overlaps = false;

  explicit Launch(const CUDA_KERNEL_NODE_PARAMS& p) : node(p) {
    DRIVER(cuFuncGetParamInfo, "cuFuncGetParamInfo");
    if (!cuFuncGetParamInfo || !p.func || !p.kernelParams || p.extra) return;
    size_t offset = 0, size = 0;
    for (size_t i = 0; cuFuncGetParamInfo(p.func, i, &offset, &size) == CUDA_SUCCESS; i++) {
      const char* value = static_cast<const char*>(p.kernelParams[i]);
      values.emplace_back(value, value + size);
    }
    whole = true;
    DRIVER(cuFuncGetName, "cuFuncGetName");
    const char* name = nullptr;
    overlaps = cuFuncGetName && cuFuncGetName(&name, p.func) == CUDA_SUCCESS && name && std::strstr(name, "_overlaps");
  }

  char* get(size_t i) const {
    char* p;
    std::memcpy(&p, values[i].data(), sizeof p);
    return p;
  }
  void put(size_t i, char* p) { std::memcpy(values[i].data(), &p, sizeof p); }
  bool pointer(size_t i) const { return values[i].size() == sizeof(char*); }

  void point() {
    pointers.clear();
    for (auto& v : values) pointers.push_back(v.data());
    node.kernelParams = pointers.data();
  }
};

} // namespace
