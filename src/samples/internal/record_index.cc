#include "samples/internal/record_index.h"

#include <algorithm>
#include <limits>

#include "dataset/format.h"

namespace varda::samples::internal {
namespace {

constexpr std::size_t kRecordReadBytes = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

Error too_long() {
  return Error(Code::kInvalid, "a record longer than " +
                                   std::to_string(dataset::kRecordBytesMax >> 20) +
                                   " MiB; is a quote missing?");
}

}  // namespace

Status RecordIndex::add(const Context& ctx, const os::Path& path, bool is_folder,
                        std::string_view extension, Fingerprint& hash, const Visit& visit) {
  if (!is_folder) return add_file(ctx, path, path.filename().string(), hash, visit);
  std::vector<std::string> names;
  TRY_VOID(visit_files(
      ctx, tree_, path, [&](std::string_view name) { return has_extension(name, extension); },
      [&](const Found& found) -> Status {
        names.push_back(found.folder.empty() ? found.name : found.folder + "/" + found.name);
        return {};
      }));
  for (const std::string& name : names) TRY_VOID(add_file(ctx, path / name, name, hash, visit));
  return {};
}

Status RecordIndex::add_file(const Context& ctx, const os::Path& path, const std::string& name,
                             Fingerprint& hash, const Visit& visit) {
  TRY(const auto file, tree_.open(path));
  File entry{.path = path, .name = name, .facts = {}, .first = offsets_.size()};
  TRY(entry.facts, file->facts());
  hash.add_text(name);
  hash.add_text(std::to_string(entry.facts.size_bytes));

  Record record(dialect_);
  std::string buffer;
  std::uint64_t offset = 0, line = 1;  // of the buffer's first unused byte
  std::size_t used = 0;                // bytes of the buffer
  bool first = true;
  bool last = entry.facts.size_bytes == 0;
  const auto failed = [&](const Error& error) {
    return error.context(name + ", line " + std::to_string(line));
  };
  while (!last) {
    TRY_VOID(ctx.check());
    const std::size_t kept = buffer.size() - used;
    if (kept > dataset::kRecordBytesMax) return failed(too_long());
    buffer.erase(0, used);
    used = 0;
    // A long record doubles the buffer, so each byte is parsed a few times at most.
    const std::uint64_t left = entry.facts.size_bytes - offset - kept;  // as of the start
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(left, std::max(kRecordReadBytes, kept)));
    last = count == left;
    buffer.resize(kept + count);
    if (auto read = read_exactly(*file, offset + kept, std::span(buffer).subspan(kept)); !read.ok())
      return std::move(read).error().context(name);
    hash.add_bytes(std::string_view(buffer).substr(kept));
    if (offset == 0 && kept == 0 && buffer.starts_with(kByteOrderMark))
      used = kByteOrderMark.size();
    while (used < buffer.size()) {
      const std::string_view rest = std::string_view(buffer).substr(used);
      const auto length = record.parse(rest, last);
      if (!length.ok()) return failed(length.error());
      if (!*length) break;
      if (**length > dataset::kRecordBytesMax) return failed(too_long());
      if (!record.blank()) {
        const auto sample = visit(record, **length, first);
        if (!sample.ok()) return failed(sample.error());
        first = false;
        if (*sample) {
          if (line > std::numeric_limits<std::uint32_t>::max())
            return failed(Error(Code::kExhausted, "too many lines in one file; split the file"));
          offsets_.push_back(offset + used);
          lines_.push_back(static_cast<std::uint32_t>(line));
        }
      }
      const std::string_view text = rest.substr(0, **length);
      line += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
      used += **length;
    }
    offset += used;
  }
  if (entry.first < offsets_.size()) files_.push_back(std::move(entry));
  return {};
}

const RecordIndex::File& RecordIndex::file(std::size_t index) const {
  const auto after =
      std::upper_bound(files_.begin(), files_.end(), index,
                       [](std::size_t wanted, const File& one) { return wanted < one.first; });
  return *(after - 1);
}

Result<const Record*> RecordIndex::Reader::read(std::size_t index) {
  const File& entry = index_.file(index);
  if (open_ != &entry) {
    TRY(file_, index_.tree_.open(entry.path));
    TRY_VOID(check_unchanged(*file_, entry.facts));
    open_ = &entry;
  }
  const std::uint64_t begin = index_.offsets_[index];
  const bool last = index + 1 == index_.size() || &index_.file(index + 1) != &entry;
  const std::uint64_t end = last ? entry.facts.size_bytes : index_.offsets_[index + 1];
  // Empty lines may follow the record, so its end is not known exactly.
  text_.resize(
      static_cast<std::size_t>(std::min<std::uint64_t>(end - begin, dataset::kRecordBytesMax + 2)));
  TRY_VOID(read_exactly(*file_, begin, text_));
  TRY(const auto length, record_.parse(text_, true));
  length_ = length.value_or(text_.size());
  return &record_;
}

Result<std::string_view> RecordIndex::Reader::text(std::size_t index) {
  TRY_VOID(read(index));
  std::string_view out = std::string_view(text_).substr(0, length_);
  while (out.ends_with('\n') || out.ends_with('\r')) out.remove_suffix(1);
  return out;
}

}  // namespace varda::samples::internal
