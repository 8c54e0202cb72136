#include "replica/snapshot.h"

#include <bit>
#include <cstring>

namespace varda::replica {
namespace {

constexpr std::string_view kMagic = "varda-snapshot-1\n";

template <typename T>
void put_number(std::string& out, T number) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(number >> (8 * i) & 0xff);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : remaining_(text) {}
  bool empty() const { return remaining_.empty(); }
  std::size_t left() const { return remaining_.size(); }
  Result<std::string_view> take(std::size_t count) {
    if (remaining_.size() < count) return Error(Code::kInvalid, "snapshot: truncated");
    const std::string_view out = remaining_.substr(0, count);
    remaining_.remove_prefix(count);
    return out;
  }
  template <typename T>
  Result<T> number() {
    TRY(const std::string_view bytes, take(sizeof(T)));
    T out = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      out |= static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    return out;
  }

 private:
  std::string_view remaining_;
};

bool inside(std::string_view path, std::string_view folder) {
  return folder.empty() ||
         (path.size() > folder.size() && path[folder.size()] == '/' && path.starts_with(folder));
}

}  // namespace

bool PathOrder::operator()(std::string_view a, std::string_view b) const {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (a[i] == '/' || b[i] == '/') return a[i] == '/';
    return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[i]);
  }
  return a.size() < b.size();
}

std::string check_path(std::string_view path, const Limits& limits) {
  if (path.size() > limits.path_bytes_max)
    return "longer than " + std::to_string(limits.path_bytes_max) + " bytes";
  if (path.find('\0') != std::string_view::npos) return "contains a zero byte";
  if (path.empty()) return "";
  while (true) {
    const auto end = path.find('/');
    const std::string_view name = path.substr(0, end);
    if (name.empty()) return "has an empty component";
    if (name == "." || name == "..") return "has the component " + std::string(name);
    if (name.size() > 255) return "has a component of more than 255 bytes";
    if (end == std::string_view::npos) return "";
    path.remove_prefix(end + 1);
  }
}

std::uint64_t Snapshot::bytes() const {
  std::uint64_t sum = 0;
  for (const SnapshotFile& file : files) sum += file.size;
  return sum;
}

std::string Snapshot::encode() const {
  std::string out(kMagic);
  put_number(out, block_bytes);
  for (const SnapshotFile& file : files) {
    CHECK(file.blocks.size() == blocks_of(file.size, block_bytes));
    put_number(out, static_cast<std::uint32_t>(file.path.size()));
    out += file.path;
    put_number(out, file.size);
    for (const codec::Sha256& block : file.blocks)
      out.append(reinterpret_cast<const char*>(block.bytes.data()), block.bytes.size());
  }
  return out;
}

Result<Snapshot> Snapshot::decode(std::string_view text, const Limits& limits) {
  if (!text.starts_with(kMagic)) return Error(Code::kInvalid, "snapshot: unknown header");
  Reader reader(text.substr(kMagic.size()));
  Snapshot out;
  TRY(out.block_bytes, reader.number<std::uint32_t>());
  if (!std::has_single_bit(out.block_bytes) || out.block_bytes < 1u << 10 ||
      out.block_bytes > 16u << 20)
    return Error(Code::kInvalid, "snapshot: unsupported block size of " +
                                     std::to_string(out.block_bytes) + " bytes");
  std::uint64_t blocks = 0;
  while (!reader.empty()) {
    if (out.files.size() == limits.files_max)
      return Error(Code::kExhausted,
                   "snapshot: more than " + std::to_string(limits.files_max) + " files");
    SnapshotFile file;
    TRY(const auto length, reader.number<std::uint32_t>());
    TRY(const std::string_view path, reader.take(length));
    if (const std::string wrong = check_path(path, limits); !wrong.empty())
      return Error(Code::kInvalid, "snapshot: the path of file " +
                                       std::to_string(out.files.size() + 1) + " " + wrong);
    file.path = path;
    if (!out.files.empty()) {
      const std::string& last = out.files.back().path;
      if (!PathOrder()(last, path))
        return Error(Code::kInvalid, "snapshot: " + file.path + " is not sorted after " + last);
      if (inside(path, last))
        return Error(Code::kInvalid, "snapshot: " + last + " is a file and a folder");
    }
    TRY(file.size, reader.number<std::uint64_t>());
    const std::uint64_t count = blocks_of(file.size, out.block_bytes);
    if (count > limits.blocks_max - blocks)
      return Error(Code::kExhausted,
                   "snapshot: more than " + std::to_string(limits.blocks_max) + " blocks");
    blocks += count;
    if (count > reader.left() / sizeof(codec::Sha256))
      return Error(Code::kInvalid, "snapshot: truncated");
    file.blocks.resize(count);
    for (codec::Sha256& block : file.blocks) {
      TRY(const std::string_view digest, reader.take(block.bytes.size()));
      std::memcpy(block.bytes.data(), digest.data(), digest.size());
    }
    out.files.push_back(std::move(file));
  }
  return out;
}

}  // namespace varda::replica
