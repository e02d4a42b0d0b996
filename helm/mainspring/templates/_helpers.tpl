{{- define "mainspring.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- include "mainspring.cut" .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- include "mainspring.cut" .Release.Name -}}
{{- else -}}
{{- include "mainspring.cut" (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- end -}}

{{/* At most 39 characters, which leaves room for the workers of the pool `default`. A longer name ends in a hash, so that
two that begin alike stay two. */}}
{{- define "mainspring.cut" -}}
{{- if gt (len .) 39 -}}
{{- printf "%s-%s" (regexReplaceAll "-+$" (trunc 32 .) "") (sha256sum . | trunc 6) -}}
{{- else -}}
{{- regexReplaceAll "-+$" . "" -}}
{{- end -}}
{{- end -}}

{{/* It can never be changed: a pool is known by its key here, so that it may serve another one later. */}}
{{- define "mainspring.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .key }}
mainspring/workers: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "mainspring.labels" -}}
{{ include "mainspring.selector" . }}
{{- with .pool }}
mainspring/pool: {{ . | quote }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: mainspring
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mainspring.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mainspring.serviceAccount" -}}
{{- default (include "mainspring.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Puts `over` into the map `base`, where false, 0 and empty texts count as said, unlike in mergeOverwrite. */}}
{{- define "mainspring.merge" -}}
{{- range $key, $value := .over -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $.base $key)) -}}
{{- include "mainspring.merge" (dict "base" (get $.base $key) "over" $value) -}}
{{- else -}}
{{- $_ := set $.base $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a pool's own values make of the common ones, as JSON. */}}
{{- define "mainspring.pool" -}}
{{- $pool := deepCopy .root.Values.worker -}}
{{- $config := deepCopy .root.Values.config -}}
{{- include "mainspring.merge" (dict "base" $config "over" $pool.config) -}}
{{- $own := default dict .own -}}
{{- include "mainspring.merge" (dict "base" $pool "over" (omit $own "config")) -}}
{{- include "mainspring.merge" (dict "base" $config "over" (default dict $own.config)) -}}
{{- $_ := set $pool "config" $config -}}
{{- if not $pool.pool }}{{ $_ := set $pool "pool" .name }}{{ end -}}
{{- toJson $pool -}}
{{- end -}}

{{/* Whole seconds of a duration like 250ms or 2m, rounded up. */}}
{{- define "mainspring.seconds" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- if eq $unit "ms" }}{{ div (add $number 999) 1000 }}
{{- else }}{{ mul $number (get (dict "s" 1 "m" 60 "h" 3600 "d" 86400) $unit) }}
{{- end -}}
{{- end -}}

{{/* Seconds that a scheduler needs to stop, by its configuration. The last five are for what has to be dropped. */}}
{{- define "mainspring.schedulerStop" -}}
{{- $drain := include "mainspring.seconds" .Values.config.scheduler.drain_timeout -}}
{{- add .Values.scheduler.preStopSeconds $drain 5 -}}
{{- end -}}

{{/* The same of a worker: model calls, then the release of its sessions. */}}
{{- define "mainspring.workerStop" -}}
{{- $drain := include "mainspring.seconds" .config.worker.drain_timeout -}}
{{- add $drain (include "mainspring.seconds" .config.lease_ttl) 5 -}}
{{- end -}}

{{- define "mainspring.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* A map as TOML. Numbers as JSON writes them: toToml makes 256.0 of 256. */}}
{{- define "mainspring.toml" -}}
{{- range $key := keys .value | sortAlpha -}}
{{- $value := get $.value $key -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "mainspring.tomlKey" $key }} = {{ toJson $value }}
{{- end -}}
{{- end -}}
{{- range $key := keys .value | sortAlpha -}}
{{- $value := get $.value $key -}}
{{- if kindIs "map" $value -}}
{{- $path := append $.path (include "mainspring.tomlKey" $key) }}
{{/* An empty line. */}}
[{{ join "." $path }}]
{{- include "mainspring.toml" (dict "path" $path "value" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names under which a scheduler is asked: those of routes, and of its service across namespaces. */}}
{{- define "mainspring.hosts" -}}
{{- $scheduler := default dict .Values.config.scheduler -}}
{{- $hosts := default list $scheduler.allowed_hosts -}}
{{- $routes := list -}}
{{- if .Values.ingress.enabled }}{{ $routes = .Values.ingress.hosts }}{{ end -}}
{{- if .Values.httpRoute.enabled }}{{ $routes = concat $routes .Values.httpRoute.hostnames }}{{ end -}}
{{- range $routes }}{{ $hosts = append $hosts (trimPrefix "*" .) }}{{ end -}}
{{- $hosts = append $hosts (printf "%s-scheduler.%s" (include "mainspring.fullname" .) .Release.Namespace) -}}
{{- toJson (uniq $hosts) -}}
{{- end -}}

{{/* The scheduler's configuration file. */}}
{{- define "mainspring.schedulerToml" -}}
{{- $config := deepCopy .Values.config -}}
{{- $over := dict
  "listen" (printf "%s:%d" .Values.bindAddress (int .Values.scheduler.port))
  "migrate" (ternary "verify" "create" .Values.migrate.enabled)
  "scheduler" (dict "allowed_hosts" (include "mainspring.hosts" . | fromJsonArray)) -}}
{{- include "mainspring.merge" (dict "base" $config "over" $over) -}}
{{- include "mainspring.toml" (dict "path" list "value" $config) | trim -}}
{{- end -}}

{{/* A pool's. */}}
{{- define "mainspring.workerToml" -}}
{{- $config := deepCopy .pool.config -}}
{{- $over := dict
  "ops_listen" (printf "%s:%d" .root.Values.bindAddress (int .pool.port))
  "worker" (dict "pool" .pool.pool "concurrency" .pool.concurrency) -}}
{{- if .pool.deletionCost.enabled }}{{ $_ := set $over.worker "kubernetes_api" .pool.deletionCost.api }}{{ end -}}
{{- include "mainspring.merge" (dict "base" $config "over" $over) -}}
{{- include "mainspring.toml" (dict "path" list "value" $config) | trim -}}
{{- end -}}

{{- define "mainspring.secretEnv" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret.existingSecret | quote }}
      key: {{ .secret.key | quote }}
{{- end -}}

{{- define "mainspring.probe" -}}
httpGet:
  path: {{ . }}
  port: http
{{- end -}}

{{- define "mainspring.probes" -}}
# A process waits half a minute for its database before it listens.
startupProbe:
  {{- include "mainspring.probe" "/livez" | nindent 2 }}
  periodSeconds: 2
  failureThreshold: 45
livenessProbe:
  {{- include "mainspring.probe" "/livez" | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  {{- include "mainspring.probe" "/readyz" | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* What a pod of any kind says; `own` are the values of its component. */}}
{{- define "mainspring.podHead" -}}
automountServiceAccountToken: false
# Variables of services in the namespace are nobody's business here.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{- define "mainspring.placement" -}}
{{- with .own.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    labelSelector:
      matchLabels:
        {{- include "mainspring.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "mainspring.containerHead" -}}
image: {{ include "mainspring.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{/* Variables of schedulers and workers alike. */}}
{{- define "mainspring.env" -}}
- name: MAINSPRING_CONFIG
  value: /etc/mainspring/mainspring.toml
- name: MAINSPRING_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{ include "mainspring.secretEnv" (dict "name" "MAINSPRING_DATABASE_URL" "secret" .root.Values.database) }}
{{ include "mainspring.secretEnv" (dict "name" "MAINSPRING_REDIS_URL" "secret" .root.Values.redis) }}
{{- with concat .root.Values.extraEnv .own.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mainspring.mounts" -}}
- name: config
  mountPath: /etc/mainspring
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- with concat .root.Values.extraVolumeMounts .own.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mainspring.volumes" -}}
- name: config
  configMap:
    name: {{ .configMap }}
- name: tmp
  emptyDir: {}
{{- with concat .root.Values.extraVolumes .own.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mainspring.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels:
    {{- include "mainspring.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .own.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready does nothing worth waiting for.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "mainspring.selector" . | nindent 6 }}
{{- end -}}

{{- define "mainspring.hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels:
    {{- include "mainspring.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ .name }}
  minReplicas: {{ .own.autoscaling.minReplicas }}
  maxReplicas: {{ .own.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .own.autoscaling.targetCPUUtilizationPercentage }}
{{- end -}}
