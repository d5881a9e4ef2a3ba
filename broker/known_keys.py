"""RocketMQ's configuration keys that this broker knows by name only.

Owns the lists by which a configuration file of RocketMQ is accepted as it is, a misspelt key is
told from a known one, and a key whose promise we cannot keep yet is never ignored in silence. It
must never hold behaviour. Called by config.py.
"""

REFUSED_KEYS: dict[str, tuple[str, ...]] = {
    "aclEnable": ("false",),
    "authenticationEnabled": ("false",),
    "authorizationEnabled": ("false",),
    "enableDLegerCommitLog": ("false",),
    "enableSlaveActingMaster": ("false",),
    "fetchControllerAddrByDnsLookup": ("false",),
    "storeType": ("default",),
}
"""Keys whose promise would be broken in silence (access checks, another store), with
the values that promise nothing: any other is an error."""

WEAKER_PROMISE_KEYS: dict[str, tuple[str, ...]] = {
    "coldDataFlowControlEnable": ("false",),
    "duplicationEnable": ("false",),
    "enableLmq": ("false",),
    "enableMixedMessageType": ("false",),
    "enableMultiDispatch": ("false",),
    "enablePropertyFilter": ("false",),
    "lockInStrictMode": ("false",),
    "recallMessageEnable": ("false",),
    "transientStorePoolEnable": ("false",),
}
"""Keys of features that are not there yet, with the values that ask for none: any other is warned
of."""

TLS_KEYS = frozenset(
    {
        "tls.server.mode",
        "tls.server.certPath",
        "tls.server.keyPath",
        "tls.server.keyPassword",
        "tls.server.need.client.auth",
        "tls.server.authClient",
        "tls.server.trustCertPath",
        "tls.test.mode.enable",
        "tls.enable",
        "tls.client.authServer",
        "tls.client.certPath",
        "tls.client.keyPassword",
        "tls.client.keyPath",
        "tls.client.trustCertPath",
    }
)
"""Keys of TlsSettings for peers and of ClientTlsSettings for name servers; RocketMQ takes them from
system properties or tls.config.file."""

_NO_EFFECT = """
    abortFile accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues
    ackMessageThreadPoolNums ackThreadPoolQueueCapacity aclCacheMaxNum adminBrokerThreadPoolNums
    adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable appendAckAsync
    appendCkAsync appendTopicForTimerDeleteKey asyncSendEnable authConfigPath
    authenticationMetadataProvider authenticationProvider authenticationStrategy
    authenticationWhitelist authorizationMetadataProvider authorizationProvider
    authorizationStrategy authorizationWhitelist autoDeleteUnusedStats autoMessageVersionOnTopicLen
    batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt
    bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond
    broadcastOffsetExpireSecond brokerConfigPath brokerNotActiveTimeoutMillis cgColdReadThreshold
    channelNotActiveInterval checkCRCOnRecover checkCommitLogOffsetOnRecover checkSyncStateSetPeriod
    checkTransactionMessageEnable cleanOfflineBrokerInterval cleanRocksDBDirtyCQIntervalMin
    cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue
    clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
    clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads coldCtrStrategyEnable coldDataScanEnable combineAssignOffsetCQType
    combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles
    combineCQPreferCQType combineCQUseRocksdbForLmq commercialBaseCount commercialSizePerMsg
    commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
    commitLogForceSwapMapInterval commitLogOffsetWaitTime commitLogRecoverMaxNum
    commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
    compactionMappedFileSize compactionScheduleInternal compactionThreadNum compatibleWithOldNameSrv
    compressedRegister configBlackList configManagerVersion connectTimeoutMillis
    consumerFallbehindThreshold consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
    controllerDeployedStandAlone correctLogicMinOffsetForceInterval
    correctLogicMinOffsetSleepInterval dLegerGroup dLegerPeers dLegerSelfId dataReadAheadEnable
    debugLockEnable defaultMessageRequestMode defaultPopShareQueueNum defaultQueryMaxNum
    defaultReadDiskFlushRatio deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
    destroyMapedFileIntervalForcibly disableCallbackExecutor disableConsumeIfConsumerReadSlowly
    disableNettyWorkerGroup disappearTimeAfterStart diskFallRecorded dispatchCqCacheNum
    dispatchCqThreads dispatchFromSenderThread enableAcceleratedRecovery enableAsyncReput
    enableBatchPush enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently
    enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction enableConnectionMetrics
    enableControllerInNamesrv enableCreateSysGroup enableDetailStat enableFastChannelEventProcess
    enableLagAndDlqMetrics enableLiteEventMode enableLitePopLog enableLmqQuota enableLmqStats
    enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics
    enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
    enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold enablePopMetrics
    enableReconnectForGoAway enableRegisterProducer enableRemoteEscape enableRemotingMetrics
    enableRequestMetrics enableRetryTopicV2 enableRocksDBLog enableRunningFlagsInFlush
    enableScheduleAsyncDeliver enableScheduleMessageStats enableShutdownGracefully
    enableSkipLongAwaitingAck enableSplitMetadata enableSplitRegistration enableStatsMetrics
    enableTransactionMetrics endTransactionPoolQueueCapacity endTransactionThreadPoolNums
    estimateAccumulation expectConsumerNumUseFilter fastFailIfNoBufferInStorePool
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
    filterDataCleanTimeSpan filterSupportRetry flushCommitLogTimed flushConsumeQueueLeastPages
    flushConsumerOffsetHistoryInterval flushLeastPagesWhenWarmMapedFile forceRegister
    forceVerifyPropCRC forwardTimeout globalColdReadThreshold haSlaveFallbehindMax
    heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode indexFileReadEnable
    indexFileWriteEnable indexRocksDBEnable initAuthenticationUser initPopOffsetByCheckMsgInMem
    innerClientAuthenticationCredentials isBrokerContainer isInBrokerContainer
    isScanAvailableNameSrv isolateLogEnable iteratorWhenUseRocksdbConsumeQueue
    liteEventCheckInterval liteEventFullDispatchDelayTime
    liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable
    liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity liteSubscriptionCheckInterval
    liteSubscriptionCheckTimeoutMills liteTtlCheckInterval loadBalancePollNameServerInterval
    loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
    logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
    logicalDiskSpaceCleanForciblyThreshold mappedFileSizeTimerLog mappedFileSwapEnable
    maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange maxClientEventCount
    maxConsumeQueueScan maxErrorRateOfBloomFilter maxFilterMessageSize maxLiteSubscriptionCount
    maxLmqConsumeQueueNum maxMessageFilterNumForNotification maxOffsetMapSize maxPopPollingSize
    maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays
    maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength memTableFlushIntervalMs
    messageIndexSafe messageRequestModeStorePath messageStorePlugIn
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
    migrateAuthFromV1Enabled minLiteTTl osPageCacheBusyTimeOutMills
    persistConsumerOffsetIncrementally popCkMaxBufferSize popCkOffsetMaxQueueSize
    popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
    popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
    popFromRetryProbabilityForPriority popInflightMessageThreshold popLongPollingForceNotifyInterval
    popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize
    popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes
    popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent preferredLeader printChannelGroups
    printChannelGroupsMinNum priorityOrderAsc processReplyMessageThreadPoolNums
    pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout
    putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums
    queryThreadPoolQueueCapacity readOnlyCommitLogStorePaths readUnCommitted
    realTimeNotifyConsumerChange realTimePersistRocksDBConfig recheckReputOffsetFromCq
    recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval rejectPullConsumerEnable
    replicasPerDiskPartition replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1
    reviveAckWaitMs reviveInterval reviveMaxSlow reviveScanTime rocketmq.serialize.type rocketmqHome
    rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    searchBcqByCacheEnable sendHeartbeatTimeoutMillis sendMessageThreadPoolNums
    sendThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverLoadBalancerEnable serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
    serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads sharedByteBufferNum
    shutdownWaitTimeSeconds skipPreOnline skipWhenCKRePutReachMaxTimes socksProxyConfig
    spinLockCollisionRetreatOptimalDegree splitMetadataSize splitRegistrationSize
    statRocksDBCQIntervalSec storeCheckpoint storePathConsumeQueue storePathDLedgerCommitLog
    storePathEpochFile storePathIndex storeReplyMessageEnable syncBrokerMemberGroupPeriod
    syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs
    timerCongestNumEachSlot timerEnableCheckMetrics timerEnableDisruptor
    timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum
    timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
    timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimeWheelEnable
    timerRecallToTimelineEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
    timerReputServiceQueueCapacity timerRocksDBEnable timerRocksDBPrecisionMs
    timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours
    timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps timerRollWindowSlot timerSkipUnknownError
    timerStopDequeue timerStopEnqueue timerWarmEnable timerWheelEnable timerWheelSnapshotFlush
    timerWheelSnapshotIntervalMs tls.config.file topicQueueLockNum totalReplicas transRocksDBEnable
    transWriteOriginTransHalfEnable transactionCheckInterval transactionCheckMax
    transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
    transactionCheckRocksdbQueueCapacity transactionMetricFlushInterval transactionOpBatchInterval
    transactionOpMsgMaxSize transactionTimeOut transferMsgByHeap transientStorePoolSize
    travelCqFileNumWhenGetMessage updateNameServerAddrPeriod useABSLock useEpollNativeSelector
    useMessageFilterForNotification usePIDColdCtrStrategy useReentrantLockWhenPutMessage
    useSeparateRetryQueue useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs
    useStaticSubscription useTLS userCacheMaxNum waitTimeMillsInAckQueue
    waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
    waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
    wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable writeBufferHighWaterMark
    writeBufferLowWaterMark writeWithoutMmap
"""

NO_EFFECT_KEYS = frozenset(_NO_EFFECT.split())
"""Keys of RocketMQ 4.9 and 5.x that tune parts which do not exist here (pools, RocksDB, ...)."""
