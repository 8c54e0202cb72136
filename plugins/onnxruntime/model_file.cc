#include "model_file.h"

#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace varda_onnxruntime {
namespace {

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

/// Iterates over the fields of one message in protobuf's wire format.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : remaining_(bytes) {}

  struct Field {
    std::uint32_t number = 0;
    std::optional<std::string_view> bytes;  // for length-delimited fields
  };
  /// Empty: the end, or a malformed field.
  std::optional<Field> next() {
    if (remaining_.empty()) return std::nullopt;
    const auto tag = varint();
    // Protobuf drops the bits above the 32nd, and would see another field here.
    if (!tag || *tag >> 32 != 0) return fail();
    Field out{static_cast<std::uint32_t>(*tag >> 3), {}};
    switch (*tag & 7) {
      case 0:
        return varint() ? std::optional(out) : fail();
      case 1:
        return skip(8) ? std::optional(out) : fail();
      case 2: {
        const auto length = varint();
        if (!length || *length > remaining_.size()) return fail();
        out.bytes = remaining_.substr(0, *length);
        remaining_.remove_prefix(*length);
        return out;
      }
      case 5:
        return skip(4) ? std::optional(out) : fail();
      default:
        return fail();  // groups, which ONNX does not use
    }
  }
  bool broken() const { return broken_; }

 private:
  std::optional<Field> fail() {
    broken_ = true;
    return std::nullopt;
  }
  bool skip(std::size_t count) {
    if (remaining_.size() < count) return false;
    remaining_.remove_prefix(count);
    return true;
  }
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (remaining_.empty()) return std::nullopt;
      const auto byte = static_cast<unsigned char>(remaining_.front());
      remaining_.remove_prefix(1);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view remaining_;
  bool broken_ = false;
};

class Walk {
 public:
  explicit Walk(Locations& out) : out_(out) {}

  void message(Message kind, std::string_view bytes, int depth) {
    if (depth > kDepthMax)
      return fail("its graphs are nested more than " + std::to_string(kDepthMax) + " deep");
    Fields fields(bytes);
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

/// A memory-mapped file; the destructor unmaps it.
class Mapped {
 public:
  explicit Mapped(const std::filesystem::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    if (fd < 0 || ::fstat(fd, &facts) != 0) {
      problem_ = std::strerror(errno);
    } else if (!S_ISREG(facts.st_mode)) {
      problem_ = "not a regular file";
    } else if (facts.st_size > 0) {
      size_ = static_cast<std::size_t>(facts.st_size);
      at_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (at_ == MAP_FAILED) problem_ = std::strerror(errno);
    }
    if (fd >= 0) ::close(fd);
  }
  ~Mapped() {
    if (size_ > 0 && at_ != MAP_FAILED) ::munmap(at_, size_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  const std::string& problem() const { return problem_; }
  std::string_view bytes() const {
    return size_ == 0 ? std::string_view() : std::string_view(static_cast<const char*>(at_), size_);
  }

 private:
  void* at_ = nullptr;
  std::size_t size_ = 0;
  std::string problem_;
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

std::string why_refused(const std::filesystem::path& file) {
  const Mapped mapped(file);
  if (!mapped.problem().empty()) return "it cannot be read: " + mapped.problem();
  const std::string_view bytes = mapped.bytes();
  if (file.extension() == ".ort" || (bytes.size() >= 8 && bytes.substr(4, 4) == kOrtFormat))
    return "it is in ONNX Runtime's own format; only ONNX files are served";
  const Locations locations = locations_in(bytes);
  if (!locations.problem.empty()) return locations.problem;
  for (const std::string& location : locations.all)
    if (std::string refused = why_refused(file.parent_path(), location); !refused.empty())
      return refused;
  return "";
}

}  // namespace varda_onnxruntime
