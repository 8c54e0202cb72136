#include "spool/spool.h"

#include <set>
#include <utility>

#include "spool/id.h"

namespace varda::spool {
namespace {

constexpr std::uint64_t kSaveEvery = 64;  // offers
constexpr std::uint64_t kStateBytesMax = 1 << 20;
constexpr std::string_view kState = "state.json";

std::string group_of(const Facts& facts) {
  if (facts.reason == Facts::kControl) return std::string(kControlGroup);
  if (facts.answers.empty() || facts.answers.front().best.empty()) return "";
  return facts.answers.front().best.front().label;
}

}  // namespace

Result<std::unique_ptr<Spool>> Spool::open(Options options, os::FileSystem& fs, Rng& rng) {
  TRY_VOID(make_folder(fs, options.root, 0775));
  std::unique_ptr<Spool> out(new Spool(std::move(options), fs, rng));  // NOLINT: private
  TRY_VOID(out->load());
  return out;
}

Status Spool::load() {
  TRY_VOID(os::remove_leftovers(fs_, options_.root));
  TRY_VOID(os::remove_leftovers(fs_, options_.root / kPending));
  TRY(const std::vector<Facts> present, list(fs_, options_.root));
  std::set<std::string> files;
  for (const Facts& facts : present) {
    selection_.add(facts.id, group_of(facts), facts.bytes);
    formats_[facts.id] = facts.format;
    files.insert(facts.file());
    files.insert(facts.id + ".json");
  }
  TRY(const std::vector<std::string> names, fs_.list(options_.root / kPending));
  for (const std::string& name : names) {
    // Halves of samples. Other names belong to other programs.
    const std::string id = name.substr(0, name.find('.'));
    if (is_id(id) && !files.contains(name)) TRY_VOID(fs_.remove(pending(name)));
  }
  const auto state = os::read_file(fs_, options_.root / kState, kStateBytesMax);
  if (state.ok()) {
    const auto json = codec::parse_json(*state, {.depth_max = 8});
    selection_.restore(json.ok() ? *json : codec::Json());
  } else {
    selection_.restore({});
  }
  return set_bounds(options_.bounds);
}

Status Spool::set_bounds(Bounds bounds) {
  options_.bounds = bounds;
  selection_.set_bounds(bounds);
  for (const std::string& id : selection_.surplus(rng_)) TRY_VOID(drop(id));
  return {};
}

Status Spool::drop(const std::string& id) {
  TRY_VOID(discard(fs_, options_.root, id, formats_[id]));
  selection_.remove(id);
  formats_.erase(id);
  return {};
}

Status Spool::refresh() {
  TRY(const PendingFiles files, pending_files(fs_, options_.root));
  TRY_VOID(remove_orphans(fs_, options_.root, files));
  const std::set<std::string> present(files.ids.begin(), files.ids.end());
  for (const std::string& id : selection_.ids()) {
    if (present.contains(id)) continue;
    selection_.remove(id);
    formats_.erase(id);
  }
  return {};
}

// The time of the folder is coarse, so a removal soon after our own write may go unnoticed. It
// matters when the spool is full.
Status Spool::refresh_if_changed(std::uint64_t bytes) {
  TRY(const auto info, fs_.stat(options_.root / kPending));
  if (!info) TRY_VOID(make_folder(fs_, options_.root, 0775));  // a person removed it
  const bool full = count() >= bounds().count_max || this->bytes() + bytes > bounds().bytes_max;
  if (info && info->modified == modified_ && !full) return {};
  if (info) modified_ = info->modified;
  return refresh();
}

Result<bool> Spool::offer(Facts facts, std::string_view bytes, std::string_view group,
                          WallTime now) {
  TRY_VOID(refresh_if_changed(bytes.size()));
  if (++unsaved_ >= kSaveEvery) TRY_VOID(save());
  facts.id = new_id(now, rng_);
  facts.time = time_text(now);
  facts.bytes = bytes.size();
  const auto leaving = selection_.offer(group, bytes.size(), rng_);
  if (!leaving) return false;
  // First the removals: the bounds hold at every moment.
  for (const std::string& id : *leaving) TRY_VOID(drop(id));
  TRY_VOID(os::write_file_atomically(fs_, pending(facts.file()), bytes));
  TRY_VOID(os::write_file_atomically(fs_, pending(facts.id + ".json"),
                                     codec::write_json(to_json(facts)) + "\n"));
  selection_.add(facts.id, group, facts.bytes);
  formats_[facts.id] = facts.format;
  if (const auto info = fs_.stat(options_.root / kPending); info.ok() && *info)
    modified_ = (*info)->modified;
  return true;
}

Status Spool::save() {
  unsaved_ = 0;
  return os::write_file_atomically(fs_, options_.root / kState,
                                   codec::write_json(selection_.state()) + "\n");
}

}  // namespace varda::spool
