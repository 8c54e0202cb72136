// Artifacts and models on a disk that loses any subset of unsynced writes, at every call:
// docs/design/010-crash-testing.md.
#include <gtest/gtest.h>

#include "artifact/fetch.h"
#include "artifact/inspect.h"
#include "artifact/internal/tree.h"
#include "artifact/model_tree.h"
#include "artifact/store.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/origin.h"
#include "base/mutex.h"
#include "os/testing/crash_campaign.h"

namespace varda::artifact {
namespace crash_test {

using os::testing::CrashCampaign;
using os::testing::CrashingFileSystem;
using testing::Origin;

const Context kForever = Context::background();
constexpr const char* kArtifacts = "/data/artifacts";
constexpr const char* kModels = "/data/models";
constexpr const char* kFetched = "/data/fetched/m";
constexpr int kAbsent = -1;

using Listing = std::map<std::string, std::string>;  // path -> kind, mode and bytes

struct Archive {
  std::string bytes;
  codec::Sha256 digest;
  Listing tree;
};

std::string noise(std::size_t size, std::uint32_t seed) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

const std::vector<Archive>& archives() {
  static const std::vector<Archive> all = [] {
    std::vector<Archive> made;
    for (std::uint32_t i = 0; i < 3; ++i) {
      const std::string model = noise(3000 + 700 * i, i), tool = noise(200, 10 + i),
                        vocabulary = noise(900, 20 + i);
      testing::TarBuilder tar;
      tar.directory("m/")
          .file("m/model.onnx", model)
          .file("m/tool", tool, 0755)
          .directory("m/sub/")
          .file("m/sub/words", vocabulary);
      Listing tree{{"model.onnx", "644 " + model},
                   {"tool", "755 " + tool},
                   {"sub", "directory"},
                   {"sub/words", "644 " + vocabulary}};
      if (i == 1) {
        tar.symlink("m/link", "sub/words");
        tree["link"] = "to sub/words";
      }
      std::string bytes = tar.tar();
      made.push_back({.bytes = bytes, .digest = codec::Sha256::of(bytes), .tree = std::move(tree)});
    }
    return made;
  }();
  return all;
}

std::string url_of(int archive) { return "http://files/" + std::to_string(archive) + ".tar"; }
Request request_of(int archive) {
  return {.url = url_of(archive),
          .digest = archives()[static_cast<std::size_t>(archive)].digest,
          .framework = "onnx"};
}

Listing read_tree(os::FileSystem& fs, const os::Path& root) {
  Listing found;
  const Status walked =
      walk(fs, root, [&](const os::Path& path, const os::FileInfo& info) -> Status {
        std::string& what = found[path.string()];
        if (info.kind == os::FileKind::kDirectory) {
          what = "directory";
        } else if (info.kind == os::FileKind::kSymlink) {
          TRY(const std::string target, fs.read_link(root / path));
          what = "to " + target;
        } else {
          TRY(const std::string bytes, os::read_file(fs, root / path));
          what = ((info.mode & 0111) != 0 ? "755 " : "644 ") + bytes;
        }
        return {};
      });
  if (!walked.ok()) found["?"] = walked.error().message();
  return found;
}

// "" if the tree equals that archive's tree, apart from `extra`.
std::string compare(os::FileSystem& fs, const os::Path& root, int archive,
                    const std::string& extra = "") {
  Listing found = read_tree(fs, root);
  if (!extra.empty()) found.erase(extra);
  const Listing& wanted = archives()[static_cast<std::size_t>(archive)].tree;
  for (const auto& [path, what] : wanted) {
    if (!found.contains(path)) return root.string() + ": " + path + " is missing";
    if (found[path] != what) return root.string() + ": " + path + " is not what the archive holds";
  }
  for (const auto& [path, what] : found)
    if (!wanted.contains(path)) return root.string() + ": " + path + " should not be there";
  return "";
}

// The archive with this tree.
int archive_at(os::FileSystem& fs, const os::Path& root) {
  for (int i = 0; i < static_cast<int>(archives().size()); ++i)
    if (compare(fs, root, i).empty()) return i;
  return kAbsent;
}

// Allowed contents of the disk: one value after an acknowledgement, several during a call.
struct Model {
  std::map<std::string, std::set<int>> versions;  // allowed archives, possibly kAbsent
  std::set<std::string> outdated;     // exposes files of an artifact that was installed again since
  std::set<std::string> targets{""};  // "": none
  std::set<std::string> joint_files{""};  // content of joint.json; "": no file
};
struct Owed {
  std::map<int, bool> artifacts;  // true: present; false: missing; no entry: either
  std::map<std::string, Model> models;
  std::set<int> fetched{kAbsent};
};

class Life {
 public:
  Life(CrashCampaign& campaign, std::uint64_t seed) : campaign_(campaign), rng_(seeded_rng(seed)) {
    CHECK(fs_.make_directories("/data", 0755).ok() && fs_.sync_directory("/").ok());
    for (int i = 0; i < 3; ++i) owed_.artifacts[i] = false;
  }

  void run() {
    fs_.on_call([this](std::string_view, const os::Path&) {
      const MutexLock one(mutex_);  // a download may use the disk from several threads
      campaign_.point(fs_, promises_,
                      [this](CrashingFileSystem& left, Rng& rng) { return check(left, rng); });
      return Status();
    });
    reopen();
    for (int step = 0; step < 14 && !campaign_.over(); ++step) {
      act();
      ++promises_;
    }
    fs_.on_call({});
  }

 private:
  void reopen() {
    store_.reset();
    tree_.reset();
    store_ = Store::open({.root = kArtifacts}, fs_, origin_).value();
    tree_ = ModelTree::open(fs_, kModels).value();
  }

  int draw(std::uint64_t bound) { return static_cast<int>(rng_->below(bound)); }

  void act() {
    const int archive = draw(3);
    const std::string key = draw(3) == 0 ? "b/n" : "a/m", version = draw(2) == 0 ? "1" : "2";
    Model& model = owed_.models[key];
    std::set<int>& shown = model.versions[version];
    if (shown.empty()) shown = {kAbsent};
    switch (draw(11)) {
      case 0:
        return reopen();
      case 10:
        return set_joint_file(key, draw(3) == 0 ? "" : version);
      case 9:
        return replace_damaged(archive);
      case 1:
        return remove(archive);
      case 2:
        return set_target(key, version);
      case 3:
        shown.insert(kAbsent);
        if (model.targets.contains(version)) model.targets.insert("");
        CHECK(tree_->unexpose(key, version).ok());
        shown = {kAbsent};
        if (model.targets.contains(version)) model.targets = {""};
        return;
      case 4:
        if (draw(2) == 0) return remove_model(key);
        return break_download(archive);
      case 5:
        return fetch_one(archive);
      default:
        install(archive);
        expose(key, version, archive);
        if (draw(2) == 0) set_target(key, version);
        if (draw(4) == 0) CHECK(tree_->note_last_good(key, version).ok());
    }
  }

  void serve(int archive, std::size_t break_after = 0) {
    origin_.put(url_of(archive),
                Origin::File{.bytes = archives()[static_cast<std::size_t>(archive)].bytes,
                             .etag = "\"" + std::to_string(archive) + "\"",
                             .break_after = break_after,
                             .piece = 2500});
  }

  void install(int archive) {
    if (const auto existing = owed_.artifacts.find(archive);
        existing != owed_.artifacts.end() && !existing->second)
      owed_.artifacts.erase(existing);
    serve(archive);
    CHECK(store_->ensure(kForever, request_of(archive)).ok());
    owed_.artifacts[archive] = true;
    ++promises_;
  }

  // Marks an artifact as damaged and installs it again beside the exposed files.
  void replace_damaged(int archive) {
    const codec::Sha256 digest = request_of(archive).digest;
    if (!store_->find(digest)) return;
    owed_.artifacts.erase(archive);
    CHECK(set_mark(fs_, kArtifacts, digest, Mark::kDamaged).ok());
    store_->keep({digest});
    const auto damaged = store_->read_requests();
    CHECK(damaged == std::vector<codec::Sha256>{digest});
    CHECK(!store_->find(digest));
    install(archive);
    for (auto& [key, model] : owed_.models)
      for (const auto& [version, shown] : model.versions)
        if (shown.contains(archive)) model.outdated.insert(version);
    CHECK(store_->read_requests().empty());
  }

  // A download that breaks in the middle and leaves its partial file.
  void break_download(int archive) {
    if (store_->find(request_of(archive).digest)) return;
    owed_.artifacts.erase(archive);
    serve(archive, 1000 + 2000 * rng_->below(3));
    int requests = 0;
    origin_.on_request([&] {
      if (++requests == 2) origin_.remove(url_of(archive));
    });
    // Succeeds if a partial file existed and one connection brings the rest.
    const bool whole = store_->ensure(kForever, request_of(archive)).ok();
    origin_.on_request({});
    owed_.artifacts[archive] = whole;
  }

  void remove(int archive) {
    const bool shown =
        std::any_of(owed_.models.begin(), owed_.models.end(), [&](const auto& model) {
          return std::any_of(model.second.versions.begin(), model.second.versions.end(),
                             [&](const auto& version) { return version.second.contains(archive); });
        });
    if (shown) return;
    const bool exists = owed_.artifacts.contains(archive) && owed_.artifacts[archive];
    if (exists) owed_.artifacts.erase(archive);
    CHECK(store_->remove(request_of(archive).digest).ok());
    owed_.artifacts[archive] = false;
    if (draw(2) == 0) store_->keep({});
  }

  void expose(const std::string& key, const std::string& version, int archive) {
    Model& model = owed_.models[key];
    std::set<int>& shown = model.versions[version];
    const bool outdated = model.outdated.erase(version) > 0;
    if (!shown.contains(archive) || outdated) shown.insert({archive, kAbsent});
    CHECK(
        tree_->expose(key, version, os::Path(kArtifacts) / request_of(archive).digest.hex()).ok());
    shown = {archive};
    ++promises_;
  }

  void set_target(const std::string& key, const std::string& version) {
    Model& model = owed_.models[key];
    if (model.versions[version].contains(kAbsent)) return;
    model.targets.insert(version);
    CHECK(tree_->set_target(key, version).ok());
    model.targets = {version};
  }

  void set_joint_file(const std::string& key, const std::string& text) {
    Model& model = owed_.models[key];
    model.joint_files.insert(text);
    CHECK(tree_->set_joint_file(key, text.empty() ? codec::Json() : codec::Json(text)).ok());
    model.joint_files = {text};
  }

  void remove_model(const std::string& key) {
    Model& model = owed_.models[key];
    for (auto& [version, shown] : model.versions) shown.insert(kAbsent);
    model.targets.insert("");
    model.joint_files.insert("");
    CHECK(tree_->remove(key).ok());
    for (auto& [version, shown] : model.versions) shown = {kAbsent};
    model.targets = {""};
    model.joint_files = {""};
  }

  void fetch_one(int archive) {
    serve(archive);
    owed_.fetched.insert({archive, kAbsent});
    CHECK(fetch(kForever, fs_, origin_, {.request = request_of(archive), .to = kFetched}).ok());
    owed_.fetched = {archive};
  }

  std::string check(CrashingFileSystem& left, Rng& rng) {
    if (std::string wrong = recovered(left, rng); !wrong.empty()) return "after a crash: " + wrong;
    if (rng.below(4) > 0) return "";
    // Only the process dies and restarts; then the power fails.
    const auto next = fs_.killed();
    Origin origin;
    const auto store = Store::open({.root = kArtifacts}, *next, origin);
    if (!store.ok()) return "after a kill: " + store.error().message();
    const auto tree = ModelTree::open(*next, kModels);
    if (!tree.ok()) return "after a kill: " + tree.error().message();
    const auto seen = (*store)->list();
    std::map<std::string, std::vector<std::string>> versions;
    for (const std::string& key : tree->keys().value()) versions[key] = tree->versions(key).value();
    const auto dark = next->crashed(rng.next());
    campaign_.count_nested();
    if (std::string wrong = recovered(*dark, rng); !wrong.empty())
      return "after a kill and a crash: " + wrong;
    for (const codec::Sha256& digest : seen)
      if (!dark->stat(os::Path(kArtifacts) / digest.hex()).value())
        return "an artifact was seen after a kill, and gone with a crash";
    for (const auto& [key, names] : versions)
      for (const std::string& version : names)
        if (!dark->stat(os::Path(kModels) / key / version).value())
          return "a version was seen after a kill, and gone with a crash";
    return "";
  }

  std::string recovered(CrashingFileSystem& left, Rng& rng) {
    Origin origin;
    for (int i = 0; i < 3; ++i)
      origin.put(url_of(i), Origin::File{.bytes = archives()[static_cast<std::size_t>(i)].bytes,
                                         .etag = rng.below(2) == 0 ? "\"" + std::to_string(i) + "\""
                                                                   : "\"another\"",
                                         .ranges = rng.below(3) > 0,
                                         .piece = 4000});
    auto store = Store::open({.root = kArtifacts}, left, origin);
    if (!store.ok()) return store.error().message();
    auto tree = ModelTree::open(left, kModels);
    if (!tree.ok()) return tree.error().message();
    if (std::string wrong = check_artifacts(left, **store); !wrong.empty()) return wrong;
    if (std::string wrong = check_models(left, *tree); !wrong.empty()) return wrong;
    if (std::string wrong = check_fetched(left); !wrong.empty()) return wrong;

    if (rng.below(4) == 0) {
      // The next install succeeds with correct files, whatever is left of a download.
      const int archive = static_cast<int>(rng.below(3));
      const auto installed = (*store)->ensure(kForever, request_of(archive));
      if (!installed.ok()) return "installing again: " + installed.error().error.message();
      if (std::string wrong = compare(left, installed->directory, archive); !wrong.empty())
        return "installing again: " + wrong;
    }
    (*store)->keep({});
    const auto scratch = left.list(os::Path(kArtifacts) / ".scratch");
    if (!scratch.ok() || !scratch->empty())
      return "scratch still holds " + (scratch.ok() ? scratch->front() : scratch.error().message());
    return "";
  }

  std::string check_artifacts(CrashingFileSystem& left, Store& store) const {
    for (int i = 0; i < 3; ++i) {
      const auto found = store.find(request_of(i).digest);
      if (found) {
        if (std::string wrong = compare(left, found->directory, i); !wrong.empty()) return wrong;
        const auto verdict = verify(kForever, left, kArtifacts, request_of(i).digest);
        if (!verdict.ok() || verdict->kind != Verdict::Kind::kWhole)
          return "artifact " + std::to_string(i) + " is whole, and its record says otherwise";
      }
      const auto owed = owed_.artifacts.find(i);
      if (owed == owed_.artifacts.end() || owed->second == found.has_value()) continue;
      return "artifact " + std::to_string(i) +
             (owed->second ? " was installed and is gone" : " was removed and is back");
    }
    return "";
  }

  std::string check_models(CrashingFileSystem& left, const ModelTree& tree) const {
    for (const auto& [key, model] : owed_.models) {
      for (const auto& [version, allowed] : model.versions) {
        const os::Path place = tree.directory(key) / version;
        const bool exists = left.stat(place).value().has_value();
        const int found = exists ? archive_at(left, place) : kAbsent;
        if (exists && found == kAbsent) return place.string() + " is shown and not whole";
        if (!allowed.empty() && !allowed.contains(found))
          return place.string() + ": archive " + std::to_string(found) + " is shown";
      }
      const auto target = tree.target(key);
      if (!target.ok()) return target.error().message();
      const std::string active = target->value_or("");
      if (!model.targets.contains(active)) return key + ": target is \"" + active + "\"";
      const auto shown = model.versions.find(active);
      if (!active.empty() && (shown == model.versions.end() || !shown->second.contains(kAbsent)) &&
          !left.stat(tree.directory(key) / active).value())
        return key + ": target names " + active + ", which does not exist";
      const auto joint = os::read_file(left, tree.directory(key) / "joint.json");
      if (const auto joint_json = codec::parse_json(joint.value_or("\"\""));
          !joint_json.ok() || !model.joint_files.contains(joint_json->as_string()))
        return key + ": joint.json is \"" + joint.value_or("") + "\"";
      const auto names = left.list(tree.directory(key));
      for (const std::string& name : names.value_or({}))
        if (name.front() == '.' && name != ".last-good") return key + ": " + name + " is left";
    }
    return "";
  }

  std::string check_fetched(CrashingFileSystem& left) const {
    const bool exists = left.stat(kFetched).value().has_value();
    std::string wrong = "it is gone";
    for (const int archive : owed_.fetched) {
      if (archive == kAbsent && !exists) return "";
      if (archive == kAbsent || !exists) continue;
      wrong = compare(left, kFetched, archive, ".varda-sha256");
      if (wrong.empty() && os::read_file(left, os::Path(kFetched) / ".varda-sha256").value_or("") ==
                               request_of(archive).digest.hex() + "\n")
        return "";
    }
    return "fetched: " + wrong;
  }

  CrashCampaign& campaign_;
  Mutex mutex_;
  const std::unique_ptr<Rng> rng_;
  CrashingFileSystem fs_;
  Origin origin_;
  std::unique_ptr<Store> store_;
  std::optional<ModelTree> tree_;
  std::uint64_t promises_ = 0;
  Owed owed_;
};

TEST(ArtifactCrash, CrashStatesHoldWholeTreesAndAcknowledgedArtifacts) {
  CrashCampaign campaign("artifact_test --gtest_filter='ArtifactCrash.*'", 600);
  while (campaign.next_seed()) Life(campaign, campaign.seed()).run();
  EXPECT_EQ(campaign.failure(), "");
}

}  // namespace crash_test
}  // namespace varda::artifact
