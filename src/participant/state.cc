#include "participant/state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "codec/json.h"

namespace varda::participant {
namespace {

using codec::Json;
using codec::Sha256;

constexpr std::uint64_t kSmallFileMax = 1 << 20;
constexpr std::uint64_t kLargeFileMax = std::uint64_t{1} << 40;
constexpr const char *kState = "state.json", *kPending = "pending.json", *kUpdate = "update";
constexpr const char *kResidual = "residual", *kResidualNext = "residual.next";
constexpr const char *kCarry = "carry", *kCarryNext = "carry.next";
constexpr const char *kCheckpoint = "checkpoint", *kFiles = "files";

std::string_view view_of(const Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

/// The content and its SHA-256, so that damage on the disk is found.
std::string sealed(std::string content) {
  const Sha256 digest = Sha256::of(content);
  content += view_of(digest);
  return content;
}

std::optional<std::string> unsealed(std::string bytes) {
  constexpr std::size_t kDigestBytes = 32;
  if (bytes.size() < kDigestBytes) return std::nullopt;
  const std::string_view content = std::string_view(bytes).substr(0, bytes.size() - kDigestBytes);
  if (view_of(Sha256::of(content)) != std::string_view(bytes).substr(content.size()))
    return std::nullopt;
  bytes.resize(content.size());
  return bytes;
}

std::optional<std::string> read_sealed(os::FileSystem& fs, const os::Path& path) {
  const auto info = fs.stat(path);
  if (info.ok() && !*info) return std::nullopt;
  auto bytes = os::read_file(fs, path, kLargeFileMax);
  auto out = bytes.ok() ? unsealed(std::move(*bytes)) : std::nullopt;
  if (!out) log::warn("damaged file of the client ignored", {{"path", path.string()}});
  return out;
}

Result<Json> read_json(os::FileSystem& fs, const os::Path& path) {
  TRY(const std::string text, os::read_file(fs, path, kSmallFileMax));
  return codec::parse_json(text);
}

}  // namespace

Result<State> State::open(os::FileSystem& fs, os::Path directory, std::string job) {
  State out(fs, std::move(directory), std::move(job));
  TRY_VOID(fs.make_directories(out.directory_ / kFiles));
  TRY_VOID(fs.sync_directory(out.directory_));
  // New directories above must survive a power cut too. Some of them may belong to others.
  for (os::Path path = out.directory_.parent_path();; path = path.parent_path()) {
    (void)fs.sync_directory(path.empty() ? os::Path(".") : path);
    if (path == path.parent_path()) break;
  }
  TRY_VOID(os::remove_leftovers(fs, out.directory_));
  TRY_VOID(out.load());
  return out;
}

Status State::load() {
  TRY(const auto info, fs_->stat(directory_ / kState));
  if (info) {
    const auto json = read_json(*fs_, directory_ / kState);
    if (!json.ok() || (*json)["job"].as_string() != job_) {
      log::info("state of another job removed", {{"path", directory_.string()}});
      TRY_VOID(clear());
    } else {
      last_task_ = (*json)["lastTask"].as_string();
    }
  }
  TRY_VOID(write_state());
  TRY(const auto pending, fs_->stat(directory_ / kPending));
  if (!pending) return end_pending();
  const auto json = read_json(*fs_, directory_ / kPending);
  const auto digest =
      json.ok() ? Sha256::parse((*json)["sha256"].as_string()) : Error(Code::kCorrupt, "no JSON");
  if (!digest.ok()) {
    log::warn("record of the unsent update is damaged", {{"path", directory_.string()}});
    return end_pending();
  }
  pending_ = Pending{(*json)["task"].as_string(), *digest,
                     static_cast<std::uint64_t>((*json)["bytes"].as_integer())};
  return {};
}

Status State::clear() {
  // The record goes first: without it the other files mean nothing.
  for (const char* name :
       {kPending, kState, kUpdate, kResidual, kResidualNext, kCarry, kCarryNext, kCheckpoint})
    TRY_VOID(fs_->remove(directory_ / name));
  return fs_->sync_directory(directory_);
}

Status State::write_state() {
  return os::write_file_atomically(
      *fs_, directory_ / kState,
      codec::write_json(Json::object({{"job", job_}, {"lastTask", last_task_}})));
}

os::Path State::file_path(const Sha256& digest) const { return directory_ / kFiles / digest.hex(); }

std::vector<float> State::residual(const federated::Layout& layout) const {
  std::vector<float> out(layout.size());
  const auto bytes = read_sealed(*fs_, directory_ / kResidual);
  const std::string_view head = view_of(layout.digest());
  if (!bytes || !std::string_view(*bytes).starts_with(head) ||
      bytes->size() != head.size() + out.size() * sizeof(float))
    return out;
  std::memcpy(out.data(), bytes->data() + head.size(), out.size() * sizeof(float));
  return out;
}

std::string State::carry() const { return read_sealed(*fs_, directory_ / kCarry).value_or(""); }

Status State::keep(const std::string& task, std::string_view update,
                   const federated::Layout& layout, std::span<const float> residual,
                   std::string_view carry) {
  const Pending pending{task, Sha256::of(update), update.size()};
  if (residual.empty()) {
    TRY_VOID(fs_->remove(directory_ / kResidualNext));
  } else {
    std::string bytes(view_of(layout.digest()));
    bytes.append(reinterpret_cast<const char*>(residual.data()), residual.size() * sizeof(float));
    TRY_VOID(os::write_file_atomically(*fs_, directory_ / kResidualNext, sealed(std::move(bytes))));
  }
  // An empty file replaces an old carry.
  TRY_VOID(os::write_file_atomically(*fs_, directory_ / kCarryNext, sealed(std::string(carry))));
  TRY_VOID(os::write_file_atomically(*fs_, update_path(), update));
  const Json record =
      Json::object({{"task", task}, {"sha256", pending.digest.hex()}, {"bytes", pending.bytes}});
  TRY_VOID(os::write_file_atomically(*fs_, directory_ / kPending, codec::write_json(record)));
  pending_ = pending;
  return fs_->remove(checkpoint_path());
}

Status State::move_if_present(const char* from, const char* to) {
  TRY(const auto info, fs_->stat(directory_ / from));
  return info ? fs_->rename(directory_ / from, directory_ / to) : Status();
}

Status State::accepted() {
  // A kill between these steps repeats them: the aggregator answers the same again.
  TRY_VOID(move_if_present(kResidualNext, kResidual));
  TRY_VOID(move_if_present(kCarryNext, kCarry));
  TRY_VOID(fs_->sync_directory(directory_));
  return dropped();
}

Status State::dropped() {
  last_task_ = pending_ ? pending_->task : last_task_;
  TRY_VOID(write_state());
  return end_pending();
}

Status State::end_pending() {
  pending_.reset();
  TRY_VOID(fs_->remove(directory_ / kPending));
  TRY_VOID(fs_->sync_directory(directory_));
  for (const char* name : {kUpdate, kResidualNext, kCarryNext})
    TRY_VOID(fs_->remove(directory_ / name));
  return {};
}

Status State::done(const std::string& task) {
  last_task_ = task;
  return write_state();
}

Status State::remove_files_except(std::span<const Sha256> digests) {
  TRY(const std::vector<std::string> names, fs_->list(directory_ / kFiles));
  for (const std::string& name : names) {
    const std::string_view hex = std::string_view(name).substr(0, name.find('.'));
    if (std::ranges::none_of(digests, [&](const Sha256& one) { return one.hex() == hex; }))
      TRY_VOID(fs_->remove(directory_ / kFiles / name));
  }
  return {};
}

}  // namespace varda::participant
