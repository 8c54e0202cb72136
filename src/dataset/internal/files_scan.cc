#include "dataset/internal/files_scan.h"

#include <algorithm>
#include <utility>

#include "dataset/internal/file_count.h"

namespace varda::dataset::internal {
namespace {

// Bytes of a file's entry in the text of a state, apart from its name and its scanner.
constexpr std::size_t kEntryBytes = 400;

std::string times_of(const os::FileFacts& facts) {
  return std::to_string(facts.modified_ns) + " " + std::to_string(facts.changed_ns);
}

bool same_file(const os::FileFacts& facts, const State& state) {
  return facts.device == state.device && facts.inode == state.inode;
}

}  // namespace

FilesScan::FilesScan(const Format& format, const FormatOptions& options, std::string_view state)
    : format_(format), options_(options) {
  if (state.empty()) return;
  if (auto parsed = FolderState::parse(state, format, options); parsed.ok()) {
    before_ = std::move(*parsed);
  } else {
    found_.whole_because = parsed.error().message();
  }
}
FilesScan::~FilesScan() = default;

Status FilesScan::begin(const Surroundings& around) {
  around_ = &around;
  walk_.emplace(around,
                WalkOptions{.below = "",
                            .depth_max = kFolderDepthMax,
                            .wanted =
                                [this](std::string_view name) {
                                  return has_extension(name, format_.extension);
                                }},
                folder_, [this](const FolderEntry& entry) -> std::uint64_t {
                  visit(entry);
                  return 0;  // resume() counts the bytes
                });
  return walk_->begin();
}

Result<bool> FilesScan::resume(const Context& ctx, std::uint64_t steps) {
  for (std::uint64_t taken = 0; taken < steps; ++taken) {
    if (file_) {
      TRY(const std::uint64_t bytes, read(ctx, (steps - taken) * kStepBytes));
      taken += bytes / kStepBytes;
      continue;
    }
    TRY(const bool all, walk_->resume(ctx, 1));
    found_.entries = walk_->entries();
    if (!all) continue;
    complete();
    return true;
  }
  return false;
}

void FilesScan::visit(const FolderEntry& entry) {
  const auto known = before_.files.find(entry.path);
  if (known != before_.files.end() && reuse(entry, known->second)) return;
  const Status opened = open(entry);
  if (!opened.ok() && opened.error().code() != Code::kNotFound)  // removed meanwhile
    folder_.inexact(entry.path, opened.error().message());
}

/// Takes the count of an unchanged file from the state.
bool FilesScan::reuse(const FolderEntry& entry, const FolderState::File& known) {
  if (!same_file(entry.facts, known.state) || entry.facts.size_bytes != known.state.offset ||
      times_of(entry.facts) != known.times)
    return false;
  const auto scanner = format_.stream(options_);
  if (!scanner->restore(known.state.scanner).ok()) return false;
  folder_.add(entry.path, scanner->end());
  found_.bytes += known.state.offset;
  found_.bytes_reused += known.state.offset;
  files_.add(Hash::of(entry.path + '\0' + known.fingerprint));
  remember(entry.path, known);
  return true;
}

Status FilesScan::open(const FolderEntry& entry) {
  TRY(auto file, entry.directory != nullptr ? entry.directory->open(entry.name)
                                            : around_->tree.open(entry.absolute));
  file_.emplace(entry.path);
  file_->count = std::make_unique<FileCount>(format_, options_, std::move(file));
  // A file of the same size with other times was rewritten, and is read from its beginning.
  if (const auto known = before_.files.find(entry.path);
      known != before_.files.end() && entry.facts.size_bytes > known->second.state.offset)
    file_->state = known->second.state;
  return {};
}

/// Returns the number of bytes read.
Result<std::uint64_t> FilesScan::read(const Context& ctx, std::uint64_t bytes_max) {
  const std::uint64_t before = file_->count->bytes_read();
  const auto finished = read_part(ctx, bytes_max);
  const std::uint64_t bytes = file_->count->bytes_read() - before;
  if (!finished.ok()) {
    TRY_VOID(ctx.check());
    if (finished.error().code() != Code::kNotFound)
      folder_.inexact(file_->path, finished.error().message());
  }
  if (!finished.ok() || *finished) file_.reset();
  return bytes;
}

/// True: the file is counted.
Result<bool> FilesScan::read_part(const Context& ctx, std::uint64_t bytes_max) {
  FileCount& count = *file_->count;
  if (!std::exchange(file_->begun, true)) TRY_VOID(count.begin(ctx, file_->state));
  TRY(const bool end, count.resume(ctx, bytes_max, nullptr));
  if (!end) return false;
  TRY(const Counted counted, count.finish(ctx));
  folder_.add(file_->path, counted.tally);
  found_.bytes += counted.bytes;
  found_.bytes_reused += counted.from_byte;
  files_.add(Hash::of(file_->path + '\0' + counted.fingerprint));
  if (count.state())
    remember(file_->path, {times_of(counted.facts), counted.fingerprint, *count.state()});
  return true;
}

void FilesScan::remember(const std::string& path, FolderState::File file) {
  if (state_bytes_ > kStateBytesMax) return;
  state_bytes_ += path.size() + kEntryBytes + codec::write_json(file.state.scanner).size();
  after_.files.insert_or_assign(path, std::move(file));
  if (state_bytes_ > kStateBytesMax) after_.files.clear();
}

void FilesScan::complete() {
  found_.fingerprint = files_.hex();
  if (state_bytes_ <= kStateBytesMax) found_.state = after_.text(format_, options_);
}

}  // namespace varda::dataset::internal
