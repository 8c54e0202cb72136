// ONNX files, as the plug-in scans them before the engine loads them.
//
// Input: the file. Each location found is a part of it. A file that cannot be scanned gives a
// reason.
#include "model_file.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const varda_onnxruntime::Locations found = varda_onnxruntime::locations_in(bytes);
  for (const std::string& location : found.all)
    if (bytes.find(location) == std::string_view::npos) std::abort();
  // A concatenation of two copies, which protobuf merges, names the same files.
  if (!found.problem.empty()) return 0;
  std::string twice(bytes);
  twice.append(bytes);
  const varda_onnxruntime::Locations again = varda_onnxruntime::locations_in(twice);
  if (!again.problem.empty() || again.all.size() != 2 * found.all.size()) std::abort();
  return 0;
}
