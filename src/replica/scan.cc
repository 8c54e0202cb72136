#include "replica/scan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace varda::replica {
namespace {

constexpr std::size_t kFolderDepthMax = 64;

class Scan {
 public:
  Scan(const Context& ctx, const Taken* before, const Limits& limits, std::uint32_t block_bytes)
      : ctx_(ctx), limits_(limits), block_bytes_(block_bytes), buffer_(block_bytes, '\0') {
    taken_.snapshot.block_bytes = block_bytes;
    if (before == nullptr || before->snapshot.block_bytes != block_bytes) return;
    before_ = before;
    for (const SnapshotFile& file : before->snapshot.files) known_.emplace(file.path, &file);
  }

  Status folder(os::ReadableDirectory& directory, const std::string& path, std::size_t depth) {
    if (depth > kFolderDepthMax)
      return Error(Code::kExhausted, path + ": folders deeper than " +
                                         std::to_string(kFolderDepthMax) + " are not copied");
    std::vector<os::ReadableDirectory::Entry> entries;
    while (true) {
      TRY_VOID(ctx_.check());
      TRY(auto entry, directory.next());
      if (!entry) break;
      if (entry->facts.kind != os::FileKind::kFile && entry->facts.kind != os::FileKind::kDirectory)
        continue;
      if (seen_ + entries.size() >= limits_.files_max)
        return Error(Code::kExhausted, "more than " + std::to_string(limits_.files_max) + " files");
      entries.push_back(std::move(*entry));
    }
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    for (const auto& entry : entries) {
      const std::string below = path.empty() ? entry.name : path + "/" + entry.name;
      if (const std::string wrong = check_path(below, limits_); !wrong.empty())
        return Error(Code::kInvalid, below + ": " + wrong);
      if (entry.facts.kind == os::FileKind::kDirectory) {
        auto inner = directory.descend(entry.name);
        if (!inner.ok()) return removed_meanwhile(inner.error(), below);
        TRY_VOID(folder(**inner, below, depth + 1));
      } else {
        auto opened = directory.open(entry.name);
        if (!opened.ok()) return removed_meanwhile(opened.error(), below);
        TRY_VOID(file(**opened, below));
      }
    }
    return {};
  }

  Status file(os::ReadableFile& opened, const std::string& path) {
    TRY(const os::FileFacts facts, opened.facts());
    SnapshotFile out{.path = path, .size = facts.size_bytes, .blocks = {}};
    const std::uint64_t count = blocks_of(out.size, block_bytes_);
    if (count > limits_.blocks_max - blocks_)
      return Error(Code::kExhausted, "more than " + std::to_string(limits_.blocks_max) + " blocks");
    blocks_ += count;
    TRY(out.blocks, taken_over(opened, path, facts));
    out.blocks.reserve(count);
    for (std::uint64_t block = out.blocks.size(); block < count; ++block) {
      TRY(const codec::Sha256 digest, digest_of(opened, path, out.size, block));
      out.blocks.push_back(digest);
    }
    ++seen_;
    taken_.facts.emplace(path, facts);
    taken_.snapshot.files.push_back(std::move(out));
    return {};
  }

  Taken finish() && { return std::move(taken_); }

 private:
  /// Fails the snapshot, because a partial one would pass as complete.
  static Status removed_meanwhile(const Error& error, const std::string& path) {
    if (error.code() == Code::kNotFound)
      return Error(Code::kUnavailable, path + " was removed while it was read");
    return error;
  }

  Result<codec::Sha256> digest_of(os::ReadableFile& opened, const std::string& path,
                                  std::uint64_t size, std::uint64_t block) {
    TRY_VOID(ctx_.check());
    const std::uint64_t want = length_of(block, size, block_bytes_);
    std::uint64_t have = 0;
    while (have < want) {
      TRY(const std::size_t got,
          opened.read(block * block_bytes_ + have,
                      std::span(buffer_.data() + have, static_cast<std::size_t>(want - have))));
      if (got == 0) return Error(Code::kUnavailable, path + " shrank while it was read");
      have += got;
    }
    taken_.bytes_read += want;
    return codec::Sha256::of(std::string_view(buffer_).substr(0, static_cast<std::size_t>(want)));
  }

  /// Blocks of the previous snapshot that need not be read again.
  Result<std::vector<codec::Sha256>> taken_over(os::ReadableFile& opened, const std::string& path,
                                                const os::FileFacts& facts) {
    std::vector<codec::Sha256> none;
    const auto known = known_.find(path);
    if (known == known_.end()) return none;
    const auto facts_before = before_->facts.find(path);
    if (facts_before == before_->facts.end()) return none;
    const SnapshotFile& was = *known->second;
    if (facts_before->second == facts && was.size == facts.size_bytes) return was.blocks;
    const bool grew = facts.device == facts_before->second.device &&
                      facts.inode == facts_before->second.inode && facts.size_bytes > was.size;
    if (!grew) return none;
    const std::uint64_t whole = was.size / block_bytes_;
    if (whole == 0) return none;
    for (const std::uint64_t block : {std::uint64_t{0}, whole - 1}) {
      TRY(const codec::Sha256 digest, digest_of(opened, path, facts.size_bytes, block));
      if (digest != was.blocks[block]) return none;
    }
    return std::vector<codec::Sha256>(was.blocks.begin(),
                                      was.blocks.begin() + static_cast<std::ptrdiff_t>(whole));
  }

  const Context& ctx_;
  const Limits& limits_;
  const std::uint64_t block_bytes_;
  const Taken* before_ = nullptr;
  std::map<std::string_view, const SnapshotFile*> known_;
  std::string buffer_;
  std::uint64_t blocks_ = 0;
  std::size_t seen_ = 0;
  Taken taken_;
};

// Size of one file's facts; the facts follow the order of the snapshot's files.
constexpr std::size_t kFactsBytes = 5 * sizeof(std::uint64_t);

void put(std::string& out, std::uint64_t number) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(number >> (8 * i) & 0xff);
}

std::uint64_t take(std::string_view& text) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 8; ++i)
    out |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
  text.remove_prefix(8);
  return out;
}

}  // namespace

std::string encode(const Taken& taken) {
  const std::string snapshot = taken.snapshot.encode();
  std::string out;
  put(out, snapshot.size());
  out += snapshot;
  for (const SnapshotFile& file : taken.snapshot.files) {
    const os::FileFacts& facts = taken.facts.at(file.path);
    for (const std::uint64_t number : {facts.size_bytes, facts.device, facts.inode,
                                       static_cast<std::uint64_t>(facts.modified_ns),
                                       static_cast<std::uint64_t>(facts.changed_ns)})
      put(out, number);
  }
  return out;
}

std::optional<Taken> decode_taken(std::string_view text, const Limits& limits) {
  if (text.size() < 8) return std::nullopt;
  const std::uint64_t length = take(text);
  if (length > text.size()) return std::nullopt;
  auto snapshot = Snapshot::decode(text.substr(0, static_cast<std::size_t>(length)), limits);
  if (!snapshot.ok()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(length));
  if (text.size() != snapshot->files.size() * kFactsBytes) return std::nullopt;
  Taken out;
  for (const SnapshotFile& file : snapshot->files) {
    os::FileFacts facts;
    facts.size_bytes = take(text);
    facts.device = take(text);
    facts.inode = take(text);
    facts.modified_ns = static_cast<std::int64_t>(take(text));
    facts.changed_ns = static_cast<std::int64_t>(take(text));
    out.facts.emplace(file.path, facts);
  }
  out.snapshot = std::move(snapshot).value();
  return out;
}

Result<Taken> take_snapshot(const Context& ctx, os::ReadableTree& tree, const os::Path& path,
                            const Taken* before, const Limits& limits, std::uint32_t block_bytes) {
  TRY(const os::FileFacts facts, tree.facts(path));
  Scan scan(ctx, before, limits, block_bytes);
  if (facts.kind == os::FileKind::kDirectory) {
    TRY(const auto directory, tree.list(path));
    TRY_VOID(scan.folder(*directory, "", 0).context(path.string()));
  } else {
    TRY(const auto file, tree.open(path));
    TRY_VOID(scan.file(*file, "").context(path.string()));
  }
  return std::move(scan).finish();
}

}  // namespace varda::replica
