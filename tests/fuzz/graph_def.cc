// Models of the OpenCV plug-in, as the plug-in scans them before OpenCV opens them.
//
// Input: a frozen TensorFlow graph, a Caffe .prototxt or a Darknet .cfg; all three readers take it.
// A scanned graph names inputs that are in the file. A concatenation of two copies, which protobuf
// merges, declares every input twice.
#include "graph_def.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const varda_opencv::Inputs& read :
       {varda_opencv::inputs_of_prototxt(bytes), varda_opencv::inputs_of_cfg(bytes)}) {
    if (read.problem.empty() && read.all.empty()) std::abort();
    for (const varda_opencv::Input& input : read.all)
      if (input.known_rank == input.dims.empty()) std::abort();
  }
  const varda_opencv::Graph graph = varda_opencv::read_graph(bytes);
  if (!graph.inputs.problem.empty()) return 0;
  for (const varda_opencv::Input& input : graph.inputs.all)
    if (bytes.find(input.name) == std::string_view::npos) std::abort();
  std::string twice(bytes);
  twice.append(bytes);
  const varda_opencv::Graph again = varda_opencv::read_graph(twice);
  if (!again.inputs.problem.empty() || again.inputs.all.size() != 2 * graph.inputs.all.size())
    std::abort();
  return 0;
}
