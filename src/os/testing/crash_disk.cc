#include "os/testing/crash_disk.h"

#include <algorithm>
#include <set>
#include <utility>

namespace varda::os::testing {
namespace {

// Remembered states of one sector between syncs. The first and last ones matter most, so those in
// the middle are dropped.
constexpr std::size_t kStatesMax = 6;

}  // namespace

Image::Page& Image::page(std::uint64_t index) {
  std::shared_ptr<Page>& slot = pages_[index];
  if (slot == nullptr) {
    slot = std::make_shared<Page>();
    slot->fill('\0');
  } else if (slot.use_count() > 1) {
    slot = std::make_shared<Page>(*slot);
  }
  return *slot;
}

std::string Image::read(std::uint64_t offset, std::uint64_t max) const {
  if (offset >= size_) return {};
  std::string bytes(std::min(max, size_ - offset), '\0');
  for (std::uint64_t done = 0; done < bytes.size();) {
    const std::uint64_t at = (offset + done) % kPage;
    const std::uint64_t part = std::min<std::uint64_t>(kPage - at, bytes.size() - done);
    if (const auto found = pages_.find((offset + done) / kPage); found != pages_.end())
      std::copy_n(found->second->data() + at, part, bytes.data() + done);
    done += part;
  }
  return bytes;
}

void Image::write(std::uint64_t offset, std::string_view bytes) {
  size_ = std::max(size_, offset + bytes.size());
  while (!bytes.empty()) {
    const std::uint64_t at = offset % kPage;
    const std::uint64_t part = std::min<std::uint64_t>(kPage - at, bytes.size());
    std::copy_n(bytes.data(), part, page(offset / kPage).data() + at);
    bytes.remove_prefix(part);
    offset += part;
  }
}

void Image::resize(std::uint64_t size) {
  if (size < size_) {
    pages_.erase(pages_.lower_bound((size + kPage - 1) / kPage), pages_.end());
    if (size % kPage != 0 && pages_.contains(size / kPage)) {
      Page& last = page(size / kPage);
      std::fill(last.begin() + static_cast<std::ptrdiff_t>(size % kPage), last.end(), '\0');
    }
  }
  size_ = size;
}

std::string Image::sector(std::uint64_t index) const {
  std::string bytes(kSector, '\0');
  if (const auto found = pages_.find(index * kSector / kPage); found != pages_.end())
    std::copy_n(found->second->data() + index * kSector % kPage, kSector, bytes.data());
  return bytes;
}

void Image::set_sector(std::uint64_t index, std::string_view bytes) {
  std::copy_n(bytes.data(), kSector,
              page(index * kSector / kPage).data() + index * kSector % kPage);
}

void Image::take_page(const Image& other, std::uint64_t index) {
  const auto found = other.pages_.find(index);
  if (found == other.pages_.end()) {
    pages_.erase(index);
  } else {
    pages_[index] = found->second;
  }
}

std::vector<std::uint64_t> Image::pages_from(std::uint64_t index) const {
  std::vector<std::uint64_t> indices;
  for (auto it = pages_.lower_bound(index); it != pages_.end(); ++it) indices.push_back(it->first);
  return indices;
}

CrashDisk::CrashDisk() {
  nodes_[kRoot] = std::make_unique<Node>(
      Node{.kind = FileKind::kDirectory, .mode = 0755, .links = 1, .durable_mode = 0755});
}

CrashDisk::CrashDisk(const CrashDisk& other)
    : pending_(other.pending_), last_(other.last_), used_(other.used_), changes_(other.changes_) {
  for (const auto& [inode, node] : other.nodes_)
    nodes_.emplace(inode, std::make_unique<Node>(*node));
}

CrashDisk::Inode CrashDisk::make(FileKind kind, std::uint32_t mode, std::string link_target) {
  nodes_[++last_] = std::make_unique<Node>(Node{.kind = kind,
                                                .mode = mode,
                                                .modified = system_clock().wall(),
                                                .link_target = std::move(link_target),
                                                .durable_mode = mode});
  return last_;
}

// Called after writing the new bytes.
void CrashDisk::dirty_sectors(Node& node, std::uint64_t from, std::uint64_t to) {
  for (std::uint64_t sector = from / Image::kSector; sector * Image::kSector < to; ++sector) {
    auto& states = node.dirty[sector];
    if (states.size() == kStatesMax) states.erase(states.begin() + kStatesMax / 2);
    states.push_back(node.image.sector(sector));
  }
}

void CrashDisk::write(Inode inode, std::uint64_t offset, std::string_view bytes) {
  ++changes_;
  Node& file = node(inode);
  const std::uint64_t before = file.image.size();
  file.image.write(offset, bytes);
  file.modified = system_clock().wall();
  if (file.image.size() != before) {
    file.sizes.push_back(file.image.size());
    used_ += file.image.size() - before;
  }
  dirty_sectors(file, offset, offset + bytes.size());
}

void CrashDisk::truncate(Inode inode, std::uint64_t size) {
  ++changes_;
  Node& file = node(inode);
  const std::uint64_t before = file.image.size();
  const std::vector<std::uint64_t> cut =
      size < before ? file.image.pages_from(size / Image::kPage) : std::vector<std::uint64_t>();
  file.image.resize(size);
  file.sizes.push_back(size);
  used_ = used_ - before + size;
  for (const std::uint64_t page : cut) {
    const std::uint64_t start = page * Image::kPage;
    dirty_sectors(file, std::max(start, size), std::min(start + Image::kPage, before));
  }
}

void CrashDisk::set_mode(Inode inode, std::uint32_t mode) {
  ++changes_;
  node(inode).mode = mode;
  node(inode).mode_pending = true;
}

void CrashDisk::sync(Inode inode) {
  ++changes_;
  Node& file = node(inode);
  // Syncs whole pages, like a page cache: a sector lost by an earlier failure is written with its
  // neighbours.
  std::set<std::uint64_t> pages;
  for (const auto& [sector, states] : file.dirty)
    pages.insert(sector * Image::kSector / Image::kPage);
  file.durable.resize(file.image.size());
  for (const std::uint64_t page : pages) file.durable.take_page(file.image, page);
  file.dirty.clear();
  file.sizes.clear();
  file.durable_mode = file.mode;
  file.mode_pending = false;
}

void CrashDisk::lose(Inode inode, Rng& rng) {
  ++changes_;
  Node& file = node(inode);
  if (file.kind != FileKind::kFile) return;
  if (rng.below(2) == 0) file.durable.resize(file.image.size());
  for (const auto& [sector, states] : file.dirty)
    if (sector * Image::kSector < file.durable.size() && rng.below(2) == 0)
      file.durable.set_sector(sector, states.back());
  file.dirty.clear();
  file.sizes.clear();
}

void CrashDisk::change(std::vector<Change> together) {
  ++changes_;
  for (const Change& change : together) {
    auto& entries = node(change.directory).entries;
    if (const auto old = entries.find(change.name); old != entries.end()) {
      Node& removed = node(old->second);
      if (--removed.links == 0) used_ -= removed.image.size();
      entries.erase(old);
    }
    if (change.target == 0) continue;
    entries[change.name] = change.target;
    Node& named = node(change.target);
    if (++named.links == 1) used_ += named.image.size();
  }
  pending_.push_back(std::move(together));
}

void CrashDisk::sync_directory(Inode directory) {
  ++changes_;
  // From the newest change back: changes in this directory, and earlier changes of the names
  // involved.
  std::set<std::pair<Inode, std::string>> names;
  std::vector<bool> due(pending_.size(), false);
  for (std::size_t i = pending_.size(); i-- > 0;) {
    for (const Change& change : pending_[i])
      due[i] = due[i] || change.directory == directory ||
               names.contains({change.directory, change.name});
    if (!due[i]) continue;
    for (const Change& change : pending_[i]) names.emplace(change.directory, change.name);
  }
  std::deque<std::vector<Change>> left;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (!due[i]) {
      left.push_back(std::move(pending_[i]));
      continue;
    }
    for (const Change& change : pending_[i]) {
      auto& entries = node(change.directory).durable_entries;
      change.target == 0 ? (void)entries.erase(change.name)
                         : (void)(entries[change.name] = change.target);
    }
  }
  pending_ = std::move(left);
  node(directory).durable_mode = node(directory).mode;
  node(directory).mode_pending = false;
}

bool CrashDisk::pending() const {
  return !pending_.empty() || std::any_of(nodes_.begin(), nodes_.end(), [](const auto& item) {
    const Node& node = *item.second;
    return node.links > 0 && (!node.dirty.empty() || !node.sizes.empty() || node.mode_pending);
  });
}

CrashDisk::Node CrashDisk::survivor(const Node& node, Rng& rng) {
  Node left{.kind = node.kind,
            .mode = node.durable_mode,
            .modified = node.modified,
            .link_target = node.link_target};
  if (node.mode_pending && rng.below(2) == 0) left.mode = node.mode;
  left.durable_mode = left.mode;
  if (node.kind != FileKind::kFile) return left;

  // Out of 8: odds that a unit survives. All and none are separate states, which real crashes leave
  // most often.
  static constexpr std::array<std::uint64_t, 6> kOdds{0, 8, 4, 1, 7, 4};
  const std::uint64_t odds = kOdds[rng.below(kOdds.size())];
  const std::uint64_t unit = rng.below(2) == 0 ? 1 : Image::kPage / Image::kSector;
  std::uint64_t size = node.durable.size();
  if (!node.sizes.empty()) {
    if (odds == 8) {
      size = node.sizes.back();
    } else if (const std::uint64_t pick = rng.below(node.sizes.size() + 1); pick > 0 && odds > 0) {
      size = node.sizes[pick - 1];
    }
  }
  left.image = node.durable;
  std::uint64_t decided = UINT64_MAX;
  bool survives = false;
  for (const auto& [sector, states] : node.dirty) {
    if (sector / unit != decided) {
      decided = sector / unit;
      survives = rng.below(8) < odds;
    }
    if (!survives) continue;
    // Mostly the newest state, sometimes an intermediate one.
    const std::size_t state =
        odds == 8 || rng.below(4) > 0 ? states.size() - 1 : rng.below(states.size());
    left.image.set_sector(sector, states[state]);
  }
  // set_sector() does not change the length; bytes beyond the surviving length are cut off.
  left.image.resize(UINT64_MAX / 2);
  left.image.resize(size);
  left.durable = left.image;
  return left;
}

CrashDisk CrashDisk::crashed(Rng& rng) const {
  CrashDisk left{Nothing{}};
  left.last_ = last_;
  std::map<Inode, std::map<std::string, Inode>> entries;
  for (const auto& [inode, node] : nodes_)
    if (node->kind == FileKind::kDirectory) entries[inode] = node->durable_entries;

  static constexpr std::array<std::uint64_t, 5> kOdds{0, 8, 4, 1, 7};
  const std::uint64_t odds = kOdds[rng.below(kOdds.size())];
  std::set<std::pair<Inode, std::string>> lost;  // names with a lost change
  for (const auto& together : pending_) {
    bool survives = rng.below(8) < odds;
    for (const Change& change : together)
      survives = survives && !lost.contains({change.directory, change.name});
    for (const Change& change : together) {
      if (!survives) {
        lost.emplace(change.directory, change.name);
      } else if (change.target == 0) {
        entries[change.directory].erase(change.name);
      } else {
        entries[change.directory][change.name] = change.target;
      }
    }
  }
  // Files reachable from the root survive; all others are lost.
  std::vector<Inode> open{kRoot};
  left.nodes_[kRoot] = std::make_unique<Node>(survivor(at(kRoot), rng));
  left.nodes_[kRoot]->links = 1;
  while (!open.empty()) {
    const Inode directory = open.back();
    open.pop_back();
    Node& node = *left.nodes_[directory];
    node.entries = node.durable_entries = entries[directory];
    for (const auto& [name, inode] : node.entries) {
      auto& slot = left.nodes_[inode];
      if (slot == nullptr) {
        slot = std::make_unique<Node>(survivor(at(inode), rng));
        left.used_ += slot->image.size();
        if (slot->kind == FileKind::kDirectory) open.push_back(inode);
      }
      ++slot->links;
    }
  }
  return left;
}

}  // namespace varda::os::testing
