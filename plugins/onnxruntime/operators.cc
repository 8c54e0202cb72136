#include "operators.h"

#include <dlfcn.h>
#include <filesystem>

namespace varda_onnxruntime {
namespace {

Operators open_operators() {
  Operators out;
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&operators), &self) == 0 ||
      self.dli_fname == nullptr) {
    out.problem = "the directory of the engine is not known";
    return out;
  }
  const std::string path =
      (std::filesystem::path(self.dli_fname).parent_path() / "varda-operators-onednn.so").string();
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    out.problem = reason != nullptr ? reason : path + " does not load";
    return out;
  }
  out.add = reinterpret_cast<varda_operators_add_function>(::dlsym(handle, VARDA_OPERATORS_ADD));
  out.free = reinterpret_cast<varda_operators_free_function>(::dlsym(handle, VARDA_OPERATORS_FREE));
  if (out.add == nullptr || out.free == nullptr) out.problem = path + " has no operators";
  return out;
}

}  // namespace

const Operators& operators() {
  // Never destroyed: sessions may outlive static objects.
  static const Operators* const instance = new Operators(open_operators());
  return *instance;
}

}  // namespace varda_onnxruntime
