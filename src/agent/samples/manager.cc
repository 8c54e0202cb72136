#include "agent/samples/manager.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "codec/text.h"
#include "oip/client.h"
#include "oip/images.h"
#include "oip/npy.h"
#include "spool/id.h"

namespace varda::agent::samples {
namespace {

using api::EdgeSamples;
using api::EdgeSamplesReport;
using spool::Facts;

constexpr std::string_view kState = "samples";
constexpr double kMinimum = api::PseudoLabelSettings::kDefaultMinimum;

std::string suffix_of(std::string_view file) { return "." + std::string(spool::format_of(file)); }

bool was_asked(const Facts& facts, const std::string& model) {
  return std::any_of(facts.answers.begin(), facts.answers.end(),
                     [&](const spool::Answer& one) { return one.tier == model; });
}

/// A batch of one. Two models of the same data often differ in dimensions of 1: [1,8,8] fits [8,8].
tensor::Shape shape_for(const tensor::Shape& sample, const tensor::Spec& input) {
  tensor::Shape wanted = input.shape, plain = sample;
  plain.insert(plain.begin(), 1);
  if (wanted.empty()) return plain;
  wanted.front() = 1;
  const auto without_ones = [](tensor::Shape shape) {
    std::erase(shape, 1);
    return shape;
  };
  return without_ones(wanted) == without_ones(plain) ? wanted : plain;
}

EdgeSamplesReport fresh_report(const EdgeSamples& work) {
  EdgeSamplesReport out;
  out.key = work.key;
  out.uid = work.uid;
  out.state = EdgeSamplesReport::kReady;
  return out;
}

}  // namespace

struct Manager::Look {
  const EdgeSamples& work;
  const os::Path root;
  EdgeSamplesReport report;
  bool to_dataset = false;  // labelled samples have a place
  bool asks_model = false;  // there is a bigger model, and it answered
  std::size_t asks = 0;
  SteadyTime asks_end;
  // The bigger model, opened once.
  std::unique_ptr<oip::Client> client;
  std::unique_ptr<oip::Predictor> predictor;

  void fail(std::string reason, std::string message) {
    if (report.state == EdgeSamplesReport::kFailed) return;  // the first problem counts
    report.state = EdgeSamplesReport::kFailed;
    report.reason = std::move(reason);
    report.message = codec::clipped(message, 1024);
  }
  /// A worker that writes here could have the agent read or move files of others.
  void refuse_link(const std::string& path) {
    fail("LinkRefused", path + " is a link: put a file there");
  }
  void fail(const Error& error) {
    fail(error.code() == Code::kExhausted ? "DiskFull" : "WriteFailed", error.message());
  }
};

Manager::Manager(Options options, os::FileSystem& fs, OpenTree datasets, net::HttpClient& http,
                 core::StateStore& state_store, Rng& rng)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      fs_(fs),
      datasets_(std::move(datasets)),
      http_(http),
      state_store_(state_store),
      rng_(rng) {}

void Manager::apply(const core::WorkList& list) {
  const MutexLock lock(mutex_);
  list_ = list.id;
  work_ = list.spec.samples;
  changed_ = true;
  wakeup_.notify();
}

void Manager::load() {
  const auto saved = state_store_.get(kState);
  if (!saved.ok()) return;
  const MutexLock lock(mutex_);
  for (const codec::Json& one : saved->as_array()) {
    EdgeSamplesReport report;
    report.key = one["key"].as_string();
    report.uid = one["uid"].as_string();
    report.state = EdgeSamplesReport::kReady;
    report.asked = one["asked"].as_integer();
    report.unsure = one["unsure"].as_integer();
    report.moved = one["moved"].as_integer();
    report.moved_pseudo = one["movedPseudo"].as_integer();
    reports_[report.key] = std::move(report);
  }
}

void Manager::save() {
  codec::Json list = codec::Json::array();
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, report] : reports_)
      list.push_back(codec::Json::object({{"key", key},
                                          {"uid", report.uid},
                                          {"asked", report.asked},
                                          {"unsure", report.unsure},
                                          {"moved", report.moved},
                                          {"movedPseudo", report.moved_pseudo}}));
  }
  if (const Status status = state_store_.put(kState, list); !status.ok())
    log::warn("cannot save counts of samples", {{"error", status.error()}});
}

std::vector<runtime::Task> Manager::tasks() {
  return {{.name = "samples",
           .due = [this] { return due(); },
           .step = [this](const Context& ctx) { step(ctx); },
           .wakeup = &wakeup_}};
}

std::optional<SteadyTime> Manager::due() const {
  const MutexLock lock(mutex_);
  if (changed_ || !published_) return SteadyTime::min();
  if (work_.empty()) return std::nullopt;
  return next_;
}

void Manager::step(const Context& ctx) {
  std::vector<EdgeSamples> work;
  std::map<std::string, EdgeSamplesReport> before;
  bool news = false;
  {
    const MutexLock lock(mutex_);
    news = std::exchange(changed_, false) || !published_;
    work = work_;
    before = reports_;
    next_ = clock_.now() + options_.period;
  }
  if (news) paused_.clear();  // another model, or another URL, is asked at once
  std::map<std::string, EdgeSamplesReport> after;
  for (const EdgeSamples& one : work) {
    if (ctx.done()) return;
    EdgeSamplesReport last = fresh_report(one);
    if (const auto known = before.find(one.key);
        known != before.end() && known->second.uid == one.uid)
      last = known->second;
    after[one.key] = look(ctx, one, std::move(last));
  }
  const bool differs = after != before;
  std::erase_if(known_, [&](const auto& one) { return !after.contains(one.first); });
  std::erase_if(paused_, [&](const auto& one) {
    return std::none_of(work.begin(), work.end(),
                        [&](const EdgeSamples& of) { return of.url == one.first; });
  });
  {
    const MutexLock lock(mutex_);
    reports_ = std::move(after);
    published_ = true;
  }
  if (differs) save();
  if (differs || news) publish();
}

EdgeSamplesReport Manager::look(const Context& ctx, const EdgeSamples& work,
                                EdgeSamplesReport before) {
  Look look{.work = work,
            .root = options_.root / work.key,
            .report = std::move(before),
            .client = nullptr,
            .predictor = nullptr};
  look.report.state = EdgeSamplesReport::kReady;
  look.report.reason.clear();
  look.report.message.clear();
  if (!work.path.empty()) {
    if (auto problem = dataset_problem(work.path)) {
      look.fail(std::move(problem->reason), std::move(problem->message));
    } else {
      look.to_dataset = true;
    }
  }
  take_labelled(look);
  take_pending(ctx, look);
  return std::move(look.report);
}

std::optional<Manager::Problem> Manager::dataset_problem(const std::string& path) const {
  const auto tree = datasets_();
  if (!tree.ok()) return Problem{"PathForbidden", tree.error().message()};
  const auto facts = (*tree)->facts(path);
  if (!facts.ok()) {
    const bool missing = facts.error().code() == Code::kNotFound;
    return Problem{missing ? "PathNotFound" : "PathForbidden",
                   path + ": " + facts.error().message()};
  }
  if (facts->kind != os::FileKind::kDirectory)
    return Problem{"PathNotFound",
                   path + " is not a directory: labelled samples need one folder for each class"};
  return std::nullopt;
}

// `folder` is DATASET/CLASS. A link there could lead anywhere.
Status Manager::move(const os::Path& from, const os::Path& folder, const std::string& file) {
  TRY(const auto present, fs_.stat(folder));
  if (present && present->kind != os::FileKind::kDirectory)
    return Error(Code::kInvalid, folder.string() + " is not a directory");
  if (!present) {
    TRY_VOID(fs_.make_directories(folder, 0755));
    TRY_VOID(fs_.sync_directory(folder.parent_path()));
  }
  if (fs_.rename(from, folder / file).ok()) {
    // A worker may have put a link in the place of the file meanwhile.
    TRY(const auto moved, fs_.stat(folder / file));
    if (moved && moved->kind != os::FileKind::kFile) {
      (void)fs_.remove(folder / file);
      return Error(Code::kInvalid, from.string() + " is a link, not a file");
    }
    return fs_.sync_directory(folder);
  }
  // Another file system.
  TRY(const std::string bytes, os::read_file(fs_, from, spool::kSampleBytesMax));
  TRY_VOID(os::write_file_atomically(fs_, folder / file, bytes));
  return fs_.remove(from);
}

void Manager::take_labelled(Look& look) {
  const auto found = spool::labels(fs_, look.root);
  if (!found.ok()) return look.fail(found.error());
  if (!found->links.empty()) look.refuse_link(found->links.front());
  look.report.labelled = static_cast<std::int64_t>(found->files.size());
  if (!look.to_dataset) return;
  for (const spool::Labelled& one : found->files) {
    const os::Path folder = look.root / spool::kLabel / one.class_name;
    std::string file = one.file;
    if (!spool::is_id(std::string_view(file).substr(0, file.find('.')))) {
      // A copy that still grows is left alone.
      if (clock_.wall() - one.modified < options_.settled) continue;
      file = spool::new_id(clock_.wall(), rng_) + suffix_of(one.file);
      if (const Status named = fs_.rename(folder / one.file, folder / file); !named.ok()) {
        look.fail(named.error());
        continue;
      }
    }
    const Status moved = move(folder / file, os::Path(look.work.path) / one.class_name, file);
    if (!moved.ok()) {
      look.fail(moved.error());
      continue;
    }
    // Facts of an interrupted label().
    (void)fs_.remove(look.root / spool::kPending / (file.substr(0, file.find('.')) + ".json"));
    ++look.report.moved;
    --look.report.labelled;
    count_moved("person");
  }
}

void Manager::take_pending(const Context& ctx, Look& look) {
  const auto pending = spool::pending_files(fs_, look.root);
  if (!pending.ok()) return look.fail(pending.error());
  (void)spool::remove_orphans(fs_, look.root, *pending);  // the next look tries again
  look.report.pending = static_cast<std::int64_t>(pending->ids.size());
  const auto paused = paused_.find(look.work.url);
  const bool pauses = paused != paused_.end() && clock_.now() < paused->second.until;
  look.asks_model = !look.work.url.empty() && !pauses;
  look.asks_end = clock_.now() + options_.asks_time;
  // Facts change by answers alone, so thousands of samples are not read every second.
  Known& known = known_[look.work.key];
  if (!(known.work == look.work) || known.to_dataset != look.to_dataset)
    known = {.work = look.work, .to_dataset = look.to_dataset, .samples = {}};
  std::map<std::string, Known::Need> samples;
  for (const std::string& id : pending->ids) {
    if (ctx.done()) return;
    std::optional<Known::Need> need;
    if (const auto found = known.samples.find(id); found != known.samples.end())
      need = found->second;
    if (!need || (need == Known::Need::kAnswer && may_ask(look))) need = take_one(ctx, look, id);
    if (need) samples.emplace_hint(samples.end(), id, *need);
    // The problem stays until the next question.
    if (need == Known::Need::kAnswer && pauses)
      look.fail(paused->second.problem.reason, paused->second.problem.message);
  }
  known.samples = std::move(samples);
}

bool Manager::may_ask(const Look& look) const {
  return look.asks_model && look.asks < options_.asks_max &&
         (look.asks == 0 || clock_.now() < look.asks_end);
}

std::optional<Manager::Known::Need> Manager::take_one(const Context& ctx, Look& look,
                                                      const std::string& id) {
  const os::Path pending = look.root / spool::kPending;
  const auto kind_of = [this](const os::Path& file) {
    const auto info = fs_.stat(file);
    return info.ok() && *info ? std::optional((*info)->kind) : std::nullopt;
  };
  auto read = spool::read_facts(fs_, look.root, id);
  if (!read.ok()) {
    const os::Path file = pending / (id + ".json");
    if (kind_of(file) == os::FileKind::kSymlink) look.refuse_link(file.string());
    return std::nullopt;  // removed meanwhile, or torn by a power cut
  }
  Facts& facts = *read;
  const auto kind = kind_of(pending / facts.file());
  if (kind == os::FileKind::kSymlink) look.refuse_link((pending / facts.file()).string());
  if (kind != os::FileKind::kFile) return std::nullopt;
  const auto labelled = [&] {
    return facts.pseudo_label && spool::is_class_name(facts.pseudo_label->label) &&
           facts.pseudo_label->score >= look.work.minimum.value_or(0);
  };
  bool answered = false;
  if (!labelled()) {
    if (look.work.url.empty() || was_asked(facts, look.work.model)) return Known::Need::kNothing;
    if (!may_ask(look)) return Known::Need::kAnswer;
    if (!ask(ctx, look, facts)) return Known::Need::kAnswer;
    answered = true;
  }
  if (labelled() && look.to_dataset && move_pseudo_labelled(look, facts)) return std::nullopt;
  if (answered) {
    // The answer stays with the sample: it is asked once, and people see it.
    const Status noted = os::write_file_atomically(fs_, pending / (facts.id + ".json"),
                                                   codec::write_json(to_json(facts)) + "\n");
    if (!noted.ok()) look.fail(noted.error());
    return std::nullopt;
  }
  // With a place, the move is tried again.
  return look.to_dataset ? std::nullopt : std::optional(Known::Need::kNothing);
}

bool Manager::move_pseudo_labelled(Look& look, const Facts& facts) {
  const Status moved = move(look.root / spool::kPending / facts.file(),
                            os::Path(look.work.path) / facts.pseudo_label->label, facts.file());
  if (!moved.ok()) {
    if (moved.error().code() == Code::kNotFound) return true;  // the server took it
    look.fail(moved.error());
    return false;
  }
  (void)spool::discard(fs_, look.root, facts.id, facts.format);
  --look.report.pending;
  ++look.report.moved;
  ++look.report.moved_pseudo;
  count_moved("model");
  return true;
}

void Manager::count_moved(const char* origin) {
  if (options_.metrics == nullptr) return;
  options_.metrics
      ->counter("varda_agent_samples_moved_total",
                "Labelled samples put into Datasets, by the origin of the label.",
                {{"origin", origin}})
      .add();
}

bool Manager::ask(const Context& ctx, Look& look, Facts& facts) {
  const EdgeSamples& work = look.work;
  const auto bytes = spool::read_sample(fs_, look.root, facts);
  if (!bytes.ok()) return false;  // taken by another process
  ++look.asks;
  const Context limited = ctx.with_timeout(options_.timeout);
  const auto unusable = [](const Error& error) {
    return error.code() == Code::kInvalid || error.code() == Code::kUnsupported;
  };
  // No fault of the sample: it is asked again.
  const auto pause = [&](const Error& error) {
    const Problem problem{unusable(error) ? "ModelUnusable" : "ModelUnreachable", error.message()};
    look.asks = options_.asks_max;
    paused_[work.url] = {clock_.now() + options_.pause, problem};
    look.fail(problem.reason, problem.message);
    return false;
  };
  if (look.predictor == nullptr) {
    look.client = std::make_unique<oip::Client>(http_, work.url);
    auto opened = oip::Predictor::open(limited, *look.client, work.model);
    if (!opened.ok()) return pause(opened.error());
    look.predictor = std::make_unique<oip::Predictor>(std::move(opened).value());
  }
  std::string version;
  const auto answer = answer_of(limited, look, facts, *bytes, version);
  spool::Answer given{.tier = work.model, .version = version, .best = {}};
  if (answer.ok()) {
    given.best.push_back(*answer);
    ++look.report.asked;
    if (answer->score >= work.minimum.value_or(kMinimum) && spool::is_class_name(answer->label)) {
      facts.pseudo_label = spool::PseudoLabel{answer->label, answer->score, work.model};
    } else {
      ++look.report.unsure;
    }
  } else if (unusable(answer.error())) {
    // This sample does not fit the bigger model; the next one may.
    look.fail("ModelUnusable", "sample " + facts.id + ": " + answer.error().message());
  } else {
    return pause(answer.error());
  }
  if (facts.answers.size() < spool::kAnswersMax) facts.answers.push_back(std::move(given));
  return true;
}

Result<spool::ClassScore> Manager::answer_of(const Context& ctx, Look& look, const Facts& facts,
                                             const std::string& bytes, std::string& version) {
  if (facts.format != Facts::kNpy) {
    TRY(const oip::Images images, oip::parse_images(bytes));
    TRY(const oip::Prediction prediction, look.predictor->predict(ctx, images, 0));
    version = prediction.version;
    return spool::ClassScore{codec::clipped(prediction.guess.label, spool::kLabelBytesMax),
                             prediction.guess.probability};
  }
  const oip::ModelMetadata& metadata = look.predictor->metadata();
  TRY(const tensor::Tensor sample, oip::parse_npy(bytes));
  TRY(tensor::Tensor row, sample.reshaped(shape_for(sample.shape(), metadata.inputs.front())));
  oip::InferRequest request;
  request.encoding = oip::Encoding::kBinary;
  request.inputs.push_back({metadata.inputs.front().name, std::move(row)});
  request.outputs = {{metadata.outputs.front().name, oip::Encoding::kBinary}};
  TRY(const oip::InferResponse response, look.client->infer(ctx, look.work.model, request));
  if (response.outputs.empty()) return Error(Code::kInvalid, "the model answered no outputs");
  version = response.model_version;
  TRY(const oip::Guess guess, oip::top(response.outputs.front().tensor, 0, metadata.labels));
  return spool::ClassScore{codec::clipped(guess.label, spool::kLabelBytesMax), guess.probability};
}

core::ListId Manager::put_report(api::EdgeNodeStatus& status,
                                 const api::EdgeNodeStatus& /*live*/) const {
  const MutexLock lock(mutex_);
  for (const EdgeSamples& one : work_)
    if (const auto found = reports_.find(one.key); found != reports_.end())
      status.samples.push_back(found->second);
  return list_;
}

}  // namespace varda::agent::samples
