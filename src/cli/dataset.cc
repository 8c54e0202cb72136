#include "cli/dataset.h"

#include <algorithm>
#include <unistd.h>

#include "cli/printer.h"
#include "codec/yaml.h"
#include "os/readable_tree.h"

namespace varda::cli {
namespace {

constexpr std::size_t kClassesShown = 20;
constexpr std::uint64_t kStateBytesMax = 16 << 20;

std::string place_of(const dataset::Malformed& what) {
  std::string out = what.file;
  if (what.line > 0) out += (out.empty() ? "line " : ", line ") + std::to_string(what.line);
  return out + (out.empty() ? "byte " : ", byte ") + std::to_string(what.byte);
}

/// Writes atomically by rename, but without a sync. A state reveals damage itself, and losing one
/// to a power cut only costs a full count. A sync would take ten times as long as continuing from
/// the state.
Status write_state(os::FileSystem& fs, const os::Path& path, std::string_view text) {
  const os::Path scratch = path.string() + ".tmp" + std::to_string(::getpid());
  const auto write = [&]() -> Status {
    TRY(const auto file, fs.open(scratch, os::Open::kTruncate, 0600));
    TRY_VOID(file->write(text));
    return fs.rename(scratch, path);
  };
  const Status written = write();
  if (!written.ok()) (void)fs.remove(scratch);
  return written;
}

}  // namespace

std::string describe_count(const dataset::Counted& counted) {
  const dataset::Tally& tally = counted.tally;
  std::vector<std::vector<std::string>> rows = {
      {"samples", std::to_string(tally.samples)},
      {"exact", tally.inexact.empty() ? "yes" : "no: " + harmless(tally.inexact)},
      {"bytes", std::to_string(counted.bytes)},
  };
  if (!tally.header.empty()) rows.push_back({"header", tally.header});
  rows.push_back({"malformed", std::to_string(tally.malformed)});
  if (tally.first_malformed)
    rows.push_back({"  first", harmless(place_of(*tally.first_malformed) + ": " +
                                        tally.first_malformed->why)});
  std::vector<std::pair<std::string, std::uint64_t>> classes(tally.classes.begin(),
                                                             tally.classes.end());
  std::stable_sort(classes.begin(), classes.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (tally.has_classes)
    rows.push_back(
        {"classes", std::to_string(classes.size()) + (tally.further_classes > 0 ? "+" : "")});
  std::uint64_t others = tally.further_classes;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (i < kClassesShown) {
      rows.push_back({"  " + harmless(classes[i].first), std::to_string(classes[i].second)});
    } else {
      others += classes[i].second;
    }
  }
  if (others > 0) rows.push_back({"  (others)", std::to_string(others)});
  rows.push_back({"fingerprint", counted.fingerprint});
  if (counted.from_byte > 0)
    rows.push_back({"read", counted.facts.kind == os::FileKind::kDirectory
                                ? std::to_string(counted.bytes - counted.from_byte) +
                                      " bytes: the others have not changed"
                                : "from byte " + std::to_string(counted.from_byte) + " on"});
  if (!counted.whole_because.empty())
    rows.push_back({"read", "all of it: " + harmless(counted.whole_because)});
  return align(rows);
}

Result<std::string> count_dataset(const Context& ctx, os::FileSystem& fs,
                                  const CountOptions& options) {
  TRY(const Output output, Output::parse(options.output));
  if (output.form != Output::Form::kTable && output.form != Output::Form::kJson &&
      output.form != Output::Form::kYaml)
    return Error(Code::kInvalid, "-o takes json or yaml, not \"" + options.output + "\"");
  dataset::Request request;
  request.path = options.path;
  if (options.progress)
    request.progress = [&options](const dataset::Progress& far) {
      options.progress(far.bytes, far.bytes_total);
    };
  TRY(request.format, dataset::find_format(options.format));
  TRY(request.options.header, dataset::parse_header(options.header));
  std::string unreadable;
  if (!options.state.empty()) {
    TRY(const auto existing, fs.stat(options.state));
    if (existing) {
      // An unreadable state counts as damaged and is replaced.
      auto state = os::read_file(fs, options.state, kStateBytesMax);
      if (state.ok()) {
        request.state = std::move(*state);
        if (request.state.empty()) unreadable = "the state is empty";
      } else {
        unreadable = state.error().message();
      }
    }
  }
  TRY(const auto tree,
      os::open_readable_tree(options.roots.empty() ? std::vector<os::Path>{"/"} : options.roots));
  TRY(dataset::Counted counted, dataset::count(ctx, *tree, request));
  if (!unreadable.empty()) counted.whole_because = unreadable;
  if (!options.state.empty()) {
    TRY_VOID(counted.state.empty() ? fs.remove(options.state)
                                   : write_state(fs, options.state, counted.state));
  }
  if (output.form == Output::Form::kJson)
    return codec::write_json_pretty(dataset::to_json(counted)) + "\n";
  if (output.form == Output::Form::kYaml) return codec::write_yaml(dataset::to_json(counted));
  return describe_count(counted);
}

}  // namespace varda::cli
