// Installs archives like a node. Any bytes become a tree below the scratch directory or a failure,
// within the limits.
//
// Mutated bytes of a compressed tar rarely pass the checksums. So the mutator works on the tar
// inside and repairs checksums and compression.
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include <zlib.h>

#include "artifact/internal/install.h"
#include "base/check.h"
#include "input.h"
#include "os/testing/memory_file_system.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using namespace varda;  // NOLINT: a program of one file
using os::FileKind;

constexpr artifact::Limits kLimits{.archive_bytes_max = 1 << 20,
                                   .extracted_bytes_max = 256 << 10,
                                   .entries_max = 64,
                                   .ratio_max = 50,
                                   .ratio_free_bytes = 32 << 10,
                                   .path_bytes_max = 200,
                                   .depth_max = 8};
const std::string kInto = "/data/scratch/tree";

/// The bytes in pieces, as from a network.
class Pieces final : public artifact::Source {
 public:
  explicit Pieces(std::string_view bytes) : left_(bytes) {}
  artifact::Outcome<std::string> next() override {
    std::string out(left_.substr(0, 700));
    left_.remove_prefix(out.size());
    count_ += out.size();
    return out;
  }
  bool looks_like_page() const override { return false; }
  std::uint64_t bytes() const override { return count_; }
  codec::Sha256 digest() override { return {}; }

 private:
  std::string_view left_;
  std::uint64_t count_ = 0;
};

/// The target of a path after following every link; absent: outside of the tree. Missing files
/// resolve to their path.
std::optional<std::string> resolved(os::FileSystem& fs, const std::string& path) {
  std::vector<std::string> todo, done;
  const auto push = [&](std::string_view text) {
    std::vector<std::string> parts;
    for (fuzz::Input input(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
         !input.rest().empty();)
      parts.emplace_back(input.until('/'));
    todo.insert(todo.end(), parts.rbegin(), parts.rend());
  };
  push(path);
  for (int hops = 0; !todo.empty() && hops < 1000; ++hops) {
    const std::string part = std::move(todo.back());
    todo.pop_back();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (done.empty()) return std::nullopt;
      done.pop_back();
      continue;
    }
    std::string current = kInto;
    for (const std::string& each : done) current += "/" + each;
    const auto info = fs.stat(current + "/" + part).value_or(std::nullopt);
    if (!info || info->kind != FileKind::kSymlink) {
      done.push_back(part);
      continue;
    }
    const std::string target = fs.read_link(current + "/" + part).value();
    if (target.starts_with('/')) return std::nullopt;
    push(target);
  }
  return path;
}

struct Seen {
  std::size_t entries = 0;
  std::uint64_t bytes = 0;
};

void look(os::testing::MemoryFileSystem& fs, const std::string& below, Seen& seen) {
  const std::string directory = below.empty() ? kInto : kInto + "/" + below;
  for (const std::string& name : fs.list(directory).value()) {
    CHECK(!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos);
    const std::string path = below.empty() ? name : below + "/" + name;
    const auto info = fs.stat(kInto + "/" + path).value();
    CHECK(info.has_value());
    ++seen.entries;
    CHECK(info->kind == FileKind::kFile || info->kind == FileKind::kDirectory ||
          info->kind == FileKind::kSymlink);
    CHECK((info->mode & 07000) == 0);
    if (info->kind == FileKind::kFile) seen.bytes += info->size_bytes;
    if (info->kind == FileKind::kSymlink) CHECK(resolved(fs, path).has_value());
    if (info->kind == FileKind::kDirectory) look(fs, path, seen);
  }
}

// The tar inside the compression.

constexpr std::size_t kBlock = 512;

void mend_checksums(std::string& tar) {
  for (std::size_t at = 0; at + kBlock <= tar.size();) {
    char* header = tar.data() + at;
    std::memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) sum += static_cast<unsigned char>(header[i]);
    std::snprintf(header + 148, 8, "%06o", sum);
    const std::string size(header + 124, 11);
    const unsigned long bytes = std::strtoul(size.c_str(), nullptr, 8);
    at += kBlock + (std::min<unsigned long>(bytes, tar.size()) + kBlock - 1) / kBlock * kBlock;
  }
}

std::optional<std::string> gunzip(std::string_view bytes) {
  z_stream stream{};
  if (::inflateInit2(&stream, 15 + 16) != Z_OK) return std::nullopt;
  std::string out(256 << 10, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = ::inflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  ::inflateEnd(&stream);
  if (result != Z_STREAM_END) return std::nullopt;
  return out;
}

std::string gzip(std::string_view bytes) {
  z_stream stream{};
  CHECK(::deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(::deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  CHECK(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto inner = gunzip(text);
  const bool is_tar = inner || (size >= kBlock && text.substr(257, 5) == "ustar");
  if (!is_tar || seed % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string tar = inner ? *inner : std::string(text);
  if (seed % 4 == 1 && tar.size() >= 2 * kBlock) {
    // Repeats an entry: duplicate names, links to later entries.
    const std::size_t from = seed / 8 % (tar.size() / kBlock) * kBlock;
    tar.insert(0, tar.substr(from, kBlock));
  }
  const std::size_t before = tar.size();
  tar.resize(before + 64);
  tar.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(tar.data()), before, tar.size()));
  mend_checksums(tar);
  const std::string out = inner ? gzip(tar) : tar;
  if (out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  os::testing::MemoryFileSystem fs;
  CHECK(fs.make_directories("/data/scratch", 0755).ok());
  CHECK(os::write_file_atomically(fs, "/data/secret", "ours").ok());
  Pieces source(fuzz::Input(data, size).rest());
  const auto tree = artifact::extract(fs, source, kInto, "", kLimits, {});
  // Everything outside of the scratch directory is unchanged, whatever the result.
  CHECK(fs.list("/").value() == std::vector<std::string>{"data"});
  CHECK((fs.list("/data").value() == std::vector<std::string>{"scratch", "secret"}));
  CHECK(fs.list("/data/scratch").value() == std::vector<std::string>{"tree"});
  CHECK(os::read_file(fs, "/data/secret").value() == "ours");
  Seen seen;
  look(fs, "", seen);
  CHECK(seen.entries <= kLimits.entries_max && seen.bytes <= kLimits.extracted_bytes_max);
  if (!tree.ok()) {
    CHECK(tree.error().reason == artifact::Reason::kUnsafeArchive);
    return 0;
  }
  CHECK(tree->bytes == seen.bytes);
  return 0;
}
