#include "api/edgeai/dataset.h"

#include <algorithm>

#include "api/describe.h"
#include "api/rule.h"

namespace varda::api {

namespace {

constexpr std::string_view kNodeNamePattern = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$";
constexpr std::string_view kDataUrlPattern = "^(/|file:///|https?://[^/]|s3://[^/])";
constexpr std::string_view kPeriodPattern = "^([0-9]{1,9}|([0-9]{1,6}[smhd]){1,4})$";

template <Group G>
constexpr const char* kDataUrl = G == Group::kEdgeai ? "dataUrl" : "url";

}  // namespace

const std::vector<std::string>& known_dataset_formats() {
  static const std::vector<std::string> names{"csv", "tsv", "txt", "jsonl", "json", "coco", "voc", "imagefolder"};
  return names;
}

std::int64_t DatasetSpec::recount_seconds() const {
  if (recount_period.is_number()) return recount_period.as_integer();
  std::int64_t total = 0, number = 0;
  for (const char c : recount_period.as_string().substr(0, 64)) {
    if (c >= '0' && c <= '9') {
      number = std::min<std::int64_t>(number, 999'999'999) * 10 + (c - '0');
      continue;
    }
    total += number * (c == 'd' ? 86400 : c == 'h' ? 3600 : c == 'm' ? 60 : 1);
    number = 0;
  }
  return total + number;  // without a unit: seconds
}

template <Group G>
void DatasetSpecOf<G>::describe(Type<DatasetSpecOf>& t) {
  using S = DatasetSpec;
  t.doc("Where the data is, and what one sample of it is.");
  t.template field<std::string>(
       kDataUrl<G>, &S::url,
       "Where the data is on the node: an absolute path, or a file:/// URL. Datasets behind http, https and s3 URLs are kept and "
       "not counted.")
      .required()
      .length(1, 4096);
  t.template field<std::string>(
       "format", &S::format,
       "What one sample is: csv, tsv, txt, jsonl, json, coco, voc or imagefolder, in upper or lower case. Others are kept and not "
       "counted.")
      .required()
      .length(1, 63);
  t.template field<std::string>("nodeName", &S::node_name, "Name of the node that has the data.")
      .length(0, 253)
      .pattern(kNodeNamePattern);
  if constexpr (G == Group::kSedna) {
    t.template field<std::string>("credentialName", &S::credential_name,
                                  "Name of a Secret. Kept for jobs that read from an object store; counting needs none.")
        .length(0, 253);
  }
  t.template field<std::string>(
       "header", &S::header,
       "Extension: whether the first record of csv and tsv names the columns. Quote yes and no: YAML takes "
       "them for booleans. Absent: auto.")
      .one_of({"auto", "yes", "no"});
  t.template field<Json>(
       "recountPeriod", &S::recount_period,
       "Extension: after so long every byte is read again, not only what was appended: seconds, or a time such as "
       "90m, 12h or 1d12h. Absent: the agent's own period.")
      .int_or_string()
      .range(0, 999'999'999)
      .pattern(kPeriodPattern)
      .length(0, 32);
  t.template field<std::optional<Replication>>(
      "replication", &S::replication, "Extension: nodes that shall have a copy of the data. Absent: it stays where it is.");
  t.keep_unknown(&S::unknown);
  t.rule(rules::matches(kDataUrl<G>, kDataUrlPattern, "must be an absolute path, a file:/// URL, or an http, https or s3 URL"));
}

void DatasetStatus::describe(Type<DatasetStatus>& t) {
  using S = DatasetStatus;
  t.doc("What the node found.");
  t.field("numberOfSamples", &S::number_of_samples, "How many samples there are. Absent: not counted yet.").format("int64");
  t.field("updateTime", &S::update_time, "When the data was last found changed.").format("date-time");
  t.field("bytes", &S::bytes, "Bytes that were counted.").format("int64");
  t.field("exact", &S::exact, "Whether numberOfSamples is all there is.");
  t.field("inexactBecause", &S::inexact_because, "Why numberOfSamples may not be all there is.").length(0, 1024);
  t.field("malformed", &S::malformed, "How many records stand where a sample would and are none.").format("int64");
  t.field("firstMalformed", &S::first_malformed, "The first of them.");
  t.field("classes", &S::classes, "How many of each class, where the format knows classes: the first 64 by name.")
      .items_max(EdgeDatasetReport::kClassesMax)
      .list_map({"name"});
  t.field("furtherClasses", &S::further_classes, "How many of all further classes together.").format("int64");
  t.field("header", &S::header, "Whether the first record named the columns: yes or no. Absent: the format has no header.")
      .length(0, 8);
  t.field("fingerprint", &S::fingerprint, "Tells one state of the data from another.").length(0, 128);
  t.field("node", &S::node, "The node that counted.").length(0, 253);
  t.field("replication", &S::replication, "How far the copies of other nodes are.");
  t.field(
       "conditions", &S::conditions,
       "Ready: the data is counted. ReportAccepted: False while the node reports what cannot be. Reasons are listed in the guide.")
      .items_max(16)
      .list_map({"type"});
  t.field("observedGeneration", &S::observed_generation, "metadata.generation that this status speaks of.").format("int64");
  t.keep_unknown(&S::unknown);
}

template <Group G>
void DatasetOf<G>::describe(Type<DatasetOf>& t) {
  t.doc("Data on a node, and how many samples it has: counted there, and again when it changes.");
  t.field("metadata", &DatasetOf::metadata, "Standard object metadata.");
  t.field("spec", &DatasetOf::spec, "Where the data is, and what one sample of it is.").required();
  t.field("status", &DatasetOf::status, "What the node found. Written by the operator.");
  t.keep_unknown(&DatasetOf::unknown);
}

template <Group G>
const Kind& DatasetOf<G>::kind() {
  constexpr bool sedna = G == Group::kSedna;
  static const Kind kind{
      .resource = {sedna ? "sedna.io" : "edgeai.io", "v1alpha1", "Dataset", "datasets", true},
      .singular = "dataset",
      .page = sedna ? "sedna-dataset" : "",
      .short_names = {sedna ? "sdset" : "dset"},
      .columns =
          {
              {"NumberOfSamples", "integer", ".status.numberOfSamples", "The number of samples in the dataset"},
              {"Node", "string", ".spec.nodeName", "The node that has the data"},
              {"Spec", "string", ".spec", "Where the data is, and its format"},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = {},
      .notes =
          {sedna ? "The same as the Dataset of edgeai.io, with the names of Sedna: manifests written for Sedna apply unchanged."
                 : "`sedna.io/v1alpha1` has the same kind under the names of Sedna.",
           "A format or a URL that cannot be counted is no error of the object: it is kept, and the condition Ready says why."},
      .schema = &type_info<DatasetOf>().schema,
  };
  return kind;
}

template <Group G>
Result<DatasetOf<G>> DatasetOf<G>::from_json(const Json& object) {
  return read_object<DatasetOf>(object);
}
template <Group G>
Json DatasetOf<G>::to_json() const {
  return write_object(*this);
}
Json DatasetStatus::to_json() const { return write_part(*this); }

template struct DatasetSpecOf<Group::kEdgeai>;
template struct DatasetSpecOf<Group::kSedna>;
template struct DatasetOf<Group::kEdgeai>;
template struct DatasetOf<Group::kSedna>;

}  // namespace varda::api
