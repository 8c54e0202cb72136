#include "model_file.h"

#include <cstdint>

#include "plugins/mapped_file.h"
#include "plugins/protobuf_fields.h"

namespace varda_onnxruntime {
namespace {

using varda_plugins::MappedFile;
using varda_plugins::ProtobufFields;

enum class Message {
  kModel,
  kGraph,
  kNode,
  kAttribute,
  kTensor,
  kSparseTensor,
  kFunction,
  kTraining,
  kEntry
};

struct Member {
  Message of;
  std::uint32_t field;
  Message is;
};
// Every path from a model to a tensor.
constexpr Member kMembers[] = {
    {Message::kModel, 7, Message::kGraph},              // graph
    {Message::kModel, 20, Message::kTraining},          // training_info
    {Message::kModel, 25, Message::kFunction},          // functions
    {Message::kTraining, 1, Message::kGraph},           // initialization
    {Message::kTraining, 2, Message::kGraph},           // algorithm
    {Message::kFunction, 7, Message::kNode},            // node
    {Message::kFunction, 11, Message::kAttribute},      // attribute_proto
    {Message::kGraph, 1, Message::kNode},               // node
    {Message::kGraph, 5, Message::kTensor},             // initializer
    {Message::kGraph, 15, Message::kSparseTensor},      // sparse_initializer
    {Message::kNode, 5, Message::kAttribute},           // attribute
    {Message::kAttribute, 5, Message::kTensor},         // t
    {Message::kAttribute, 6, Message::kGraph},          // g
    {Message::kAttribute, 10, Message::kTensor},        // tensors
    {Message::kAttribute, 11, Message::kGraph},         // graphs
    {Message::kAttribute, 22, Message::kSparseTensor},  // sparse_tensor
    {Message::kAttribute, 23, Message::kSparseTensor},  // sparse_tensors
    {Message::kSparseTensor, 1, Message::kTensor},      // values
    {Message::kSparseTensor, 2, Message::kTensor},      // indices
    {Message::kTensor, 13, Message::kEntry},            // external_data
};
constexpr std::uint32_t kEntryKey = 1, kEntryValue = 2;
constexpr int kDepthMax = 100;  // as in protobuf
constexpr std::string_view kMemoryMarker =
    "_ORT_MEM_ADDR_";                            // addresses in ONNX Runtime's own memory
constexpr std::string_view kOrtFormat = "ORTM";  // identifier of its flatbuffers, at byte 4

constexpr std::string_view kOrtFormatRefused =
    "it is in ONNX Runtime's own format; only ONNX files are served";

bool is_ort_format(std::string_view bytes) {
  return bytes.size() >= 8 && bytes.substr(4, 4) == kOrtFormat;
}

class Walk {
 public:
  explicit Walk(Locations& out) : out_(out) {}

  void message(Message kind, std::string_view bytes, int depth) {
    if (depth > kDepthMax)
      return fail("its graphs are nested more than " + std::to_string(kDepthMax) + " deep");
    ProtobufFields fields(bytes);
    std::string_view key, value;
    while (const auto field = fields.next()) {
      if (!field->bytes) continue;
      if (kind == Message::kEntry) {
        if (field->number == kEntryKey) key = *field->bytes;
        if (field->number == kEntryValue) value = *field->bytes;
        continue;
      }
      for (const Member& member : kMembers)
        if (member.of == kind && member.field == field->number)
          message(member.is, *field->bytes, depth + 1);
      if (!out_.problem.empty()) return;
    }
    if (fields.broken()) return fail("it is not an ONNX file, or it is truncated");
    if (kind == Message::kEntry && key == "location") out_.all.emplace_back(value);
  }

 private:
  void fail(std::string problem) {
    if (out_.problem.empty()) out_.problem = std::move(problem);
  }
  Locations& out_;
};

std::string why_refused(const std::filesystem::path& directory, const std::string& location) {
  const std::string named = "it keeps a tensor in the file \"" + location + "\", ";
  if (location.empty()) return "it keeps a tensor in a file without a name";
  if (location.find('\0') != std::string::npos)
    return "it keeps a tensor in a file whose name has a zero byte";
  if (location.find(kMemoryMarker) != std::string::npos)
    return named + "which names an address in memory";
  const std::filesystem::path path(location);
  if (path.is_absolute()) return named + "which is outside the model's directory";
  for (const auto& part : path)
    if (part == "..") return named + "which is outside the model's directory";
  std::error_code error;
  const auto root = std::filesystem::canonical(directory, error);
  if (error) return "its directory cannot be read: " + error.message();
  const auto target = std::filesystem::canonical(root / path, error);
  if (error) return named + "which cannot be read: " + error.message();
  const auto inside = target.lexically_relative(root);
  if (inside.empty() || *inside.begin() == ".." || inside == ".")
    return named + "which is a link out of the model's directory";
  if (!std::filesystem::is_regular_file(target, error))
    return named + "which is not a regular file";
  return "";
}

}  // namespace

Locations locations_in(std::string_view bytes) {
  Locations out;
  Walk(out).message(Message::kModel, bytes, 0);
  return out;
}

std::string why_bytes_refused(std::string_view bytes) {
  if (is_ort_format(bytes)) return std::string(kOrtFormatRefused);
  const Locations locations = locations_in(bytes);
  if (!locations.problem.empty() || locations.all.empty()) return locations.problem;
  return "it keeps a tensor in the file \"" + locations.all.front() + "\", but has no directory";
}

std::string why_refused(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  if (!mapped.problem().empty()) return "it cannot be read: " + mapped.problem();
  const std::string_view bytes = mapped.bytes();
  if (file.extension() == ".ort" || is_ort_format(bytes)) return std::string(kOrtFormatRefused);
  const Locations locations = locations_in(bytes);
  if (!locations.problem.empty()) return locations.problem;
  for (const std::string& location : locations.all)
    if (std::string refused = why_refused(file.parent_path(), location); !refused.empty())
      return refused;
  return "";
}

}  // namespace varda_onnxruntime
